/** The tab Text: translate, tag, generate, dates. */
import { drawAttention, onChange } from "./draw.js";
import { askJson } from "./server.js";

const EXAMPLES = {
  translate: "",
  tag: "Yesterday Anna Smith flew from Berlin to New York with Lufthansa.",
  generate: "ROMEO:\n",
  dates: "the 20th of July, 1969",
};
const byId = (name) => document.getElementById(name);
const element = (tag, fields = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...inside);
  return made;
};
const typed = { ...EXAMPLES }; // what stands in the box of each task
let models = [];
let task = "translate";
let drawn = () => {};

export function offer(served) {
  models = served.filter((one) => one.kind === "text");
  const translator = models.find((one) => one.task === "translate")?.id ?? "";
  typed.translate ||= /^(de|ger|multi30k)/.test(translator) ? "Ein Hund läuft über die Wiese." : "Je suis content de te voir.";
  // what an installation lacks is no good beginning
  if (!models.some((one) => one.task === task) && models.length) byId("text-form").elements.task.value = models[0].task;
  choose();
}

function choose() {
  typed[task] = byId("text-input").value || typed[task];
  task = byId("text-form").elements.task.value;
  byId("text-input").value = typed[task];
  const able = models.filter((one) => one.task === task);
  byId("text-model").replaceChildren(...able.map((one) => new Option(one.id)));
  byId("text-model-field").hidden = able.length < 2;
  byId("generate-fields").hidden = task !== "generate";
  byId("text-result").replaceChildren();
  byId("text-state").textContent = able.length || !models.length ? "" : "No bundle for this is served here; press Go to see which one is missing.";
  byId("text-state").className = "quiet";
}

async function go(event) {
  event.preventDefault();
  const order = { task, text: byId("text-input").value };
  if (byId("text-model").value) order.model = byId("text-model").value;
  if (task === "generate") Object.assign(order, { length: Number(byId("length").value), temperature: Number(byId("temperature").value) });
  byId("text-state").className = "quiet";
  byId("text-state").textContent = "working …";
  try {
    const answer = await askJson("v1/text", order);
    byId("text-state").textContent = `model: ${answer.model}`;
    show(answer);
  } catch (error) {
    byId("text-state").className = "wrong";
    byId("text-state").textContent = error.message;
    byId("text-result").replaceChildren();
  }
}

function show(answer) {
  const parts = { tag: tagged, generate: written }[answer.task] ?? converted;
  byId("text-result").replaceChildren(...parts(answer));
  drawn();
}

function converted(answer) {
  const output = answer.output || (answer.task === "dates" ? "No date was found in it." : "(nothing)");
  const parts = [element("p", { className: "output", textContent: output })];
  if (answer.candidates.length > 1) parts.push(candidates(answer.candidates));
  drawn = () => {};
  if (answer.attention) {
    const canvas = element("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "Attention: what it looked at while it wrote");
    const { rows, columns, weights } = answer.attention;
    const names = columns.map((one) => (one === " " ? "␣" : one));
    parts.push(element("figure", {}, element("div", { className: "scroll" }, canvas), element("figcaption", {
      textContent: "Attention: each row is a symbol that it wrote, and shows at which symbols of your text it looked meanwhile.",
    })));
    drawn = () => canvas.parentElement?.clientWidth && drawAttention(canvas, rows, names, weights);
  }
  return parts;
}

function candidates(list) {
  const table = element("table", {}, element("caption", { className: "quiet", textContent: "The best few, and their scores" }));
  for (const one of list) {
    const row = table.insertRow();
    row.insertCell().textContent = one.text || "(nothing)";
    row.insertCell().textContent = one.score.toFixed(3);
  }
  return table;
}

function written(answer) {
  return [element("p", { className: "output" }, element("b", { textContent: answer.text }), answer.output)];
}

/** Names marked in the text where the tags are of names, else each word over its part of speech. */
function tagged(answer) {
  const output = element("p", { className: "output" });
  if (!answer.spans.length) {
    for (const one of answer.tokens) output.append(label(one.word, one.tag === "O" ? "" : one.tag, `${Math.round(100 * one.probability)} % sure`));
    return [output];
  }
  let last = 0;
  for (const span of answer.spans) {
    output.append(answer.text.slice(last, span.start), label(answer.text.slice(span.start, span.end), span.type, "a name"));
    output.lastElementChild.classList.add("name");
    last = span.end;
  }
  output.append(answer.text.slice(last));
  return [output];
}

const label = (word, tag, title) => element("span", { className: "tagged", title }, word, element("small", { textContent: tag }));

byId("text-form").onsubmit = go;
byId("text-tasks").onchange = choose;
byId("text-input").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("text-form").requestSubmit();
};
byId("temperature").oninput = () => (byId("temperature-value").textContent = byId("temperature").value);
onChange(() => byId("text").hidden || drawn());
