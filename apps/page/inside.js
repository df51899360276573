/** The tab Look inside: what a recogniser made of one utterance, from CTC's posteriors to what the beam did. */
import { drawBeam, drawMap, drawSound, onChange } from "./draw.js";
import { microphone, showTrouble } from "./microphone.js";
import { ask } from "./server.js";
import { Recording, play, wav } from "./sound.js";

const MOST = 40; // utterances that can be chosen
const LONGEST_S = 20;
const byId = (name) => document.getElementById(name);
const utterances = new Map(); // number -> {text, samples, rate}
let last = 0;
let shown = null; // {answer, utterance}
let models = [];

export function offer(served) {
  models = served.filter((one) => one.kind === "speech");
  byId("inside-record").disabled = !models.length;
  if (!models.length) say("This server has no recogniser of speech: start it with --model BUNDLE.");
}

/** An utterance to choose from; its number. */
export function addUtterance(text, samples, rate) {
  utterances.set(++last, { text, samples, rate });
  if (utterances.size > MOST) utterances.delete(utterances.keys().next().value);
  const options = [...utterances].reverse().map(([number, one]) => {
    const seconds = (one.samples.length / one.rate).toFixed(1);
    return new Option(`${one.text.slice(0, 60) || "recorded here"} (${seconds} s)`, number);
  });
  const before = byId("utterance").value;
  byId("utterance").replaceChildren(...options);
  if (utterances.has(Number(before))) byId("utterance").value = before;
  for (const name of ["inside-look", "inside-play"]) byId(name).disabled = false;
  return last;
}

const say = (text, wrong = false) => {
  byId("inside-state").textContent = text;
  byId("inside-state").className = wrong ? "wrong" : "quiet";
};

// --- recording ----------------------------------------------------------------------------------------------------

const recording = new Recording(LONGEST_S);
let limit = null;

function hear(samples, time) {
  recording.add(samples, time, microphone.rate);
}

async function record() {
  if (limit) return stop();
  showTrouble("");
  recording.clear();
  try {
    await microphone.open(hear);
  } catch (error) {
    return showTrouble(error.message);
  }
  limit = setTimeout(stop, LONGEST_S * 1000);
  byId("inside-record").textContent = "Stop and look";
  byId("inside-record").classList.add("on");
  say(`Speak; ${LONGEST_S} seconds at most.`);
}

function stop() {
  clearTimeout(limit);
  limit = null;
  microphone.close(hear);
  byId("inside-record").textContent = "Record an utterance";
  byId("inside-record").classList.remove("on");
  byId("utterance").value = addUtterance("", recording.cut(recording.start, recording.end), recording.rate);
  look();
}

// --- looking ------------------------------------------------------------------------------------------------------

async function look() {
  const utterance = utterances.get(Number(byId("utterance").value));
  if (!utterance) return;
  const form = new FormData();
  form.append("model", byId("speech-model").value || models[0]?.id);
  form.append("beam", byId("beam").value);
  form.append("file", wav(utterance.samples, utterance.rate), "utterance.wav");
  say("looking …");
  byId("inside-look").disabled = true;
  try {
    const answer = await (await ask("v1/inspect", { method: "POST", body: form })).json();
    for (const key of ["posteriors", "attention"]) if (answer[key]) answer[key].values = bytes(answer[key].data);
    shown = { answer, utterance, best: winners(answer.steps) };
    byId("beam-step").max = answer.steps.length - 1;
    byId("beam-step").value = shown.best.findLastIndex((lane) => lane >= 0);
    byId("inside-result").hidden = false;
    show();
    say(`model: ${answer.model}`);
  } catch (error) {
    say(error.message, true);
  }
  byId("inside-look").disabled = false;
}

const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

/** For each step the place of what became the answer, found from the end backwards. */
function winners(steps) {
  const best = steps.map(() => -1);
  const ended = (step) => step.ended.some(Boolean);
  const byPieces = steps.some(ended);
  let [at, lane] = [steps.length - 1, 0];
  if (byPieces) {
    const mean = (score, length) => score / Math.max(1, length);
    let top = -Infinity;
    steps.forEach((step, n) =>
      step.ended.forEach((over, place) => {
        if (over && mean(step.scores[place], n) > top) [top, at, lane] = [mean(step.scores[place], n), n, place];
      }),
    );
  }
  for (; at >= 0 && lane >= 0; at--) {
    best[at] = lane;
    lane = steps[at].parents[lane];
  }
  return best;
}

function show() {
  if (!shown || byId("inside").hidden) return;
  const { answer, utterance } = shown;
  byId("inside-text").textContent = answer.text ? `“${answer.text}”` : "Nothing was understood.";
  const sound = picture("figure-sound", `Your voice, ${answer.duration.toFixed(1)} s, low tones at the bottom.`);
  sound.className = "picture";
  drawSound(sound, utterance.samples, utterance.rate, 0, answer.duration);
  map("figure-posteriors", answer.posteriors, answer, "CTC: how probable each letter is in each frame, in the order in which they are heard; ∅ is the blank, ␣ the space. Read the peaks from left to right, leave out the blanks, and you have the text.");
  map("figure-attention", answer.attention, answer, "Attention: where the decoder listened (left to right) while it wrote each piece (top to bottom). Where it follows what is said, the map falls like stairs.");
  byId("nbest").tBodies[0].replaceChildren(...answer.hypotheses.map((one) => reading(one, answer.hypotheses[0].score)));
  showBeam();
}

function picture(name, caption) {
  const figure = byId(name);
  figure.hidden = false;
  figure.querySelector("figcaption").textContent = caption;
  const canvas = figure.querySelector("canvas") ?? document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption);
  figure.prepend(canvas);
  return canvas;
}

function map(name, part, answer, caption) {
  byId(name).hidden = !part;
  if (part) drawMap(picture(name, caption), part.rows, part.frames, part.values, part.frames * answer.frame_s);
}

function reading(one, best) {
  const row = document.createElement("tr");
  for (const text of [one.text || "(nothing)", one.score.toFixed(3), (best - one.score).toFixed(3)]) {
    row.insertCell().textContent = text;
  }
  return row;
}

// --- the beam -----------------------------------------------------------------------------------------------------

function showBeam() {
  const { steps } = shown.answer;
  const timed = steps.at(-1).time !== null;
  byId("beam-words").textContent =
    `At each step the ${byId("beam").value} best hypotheses live on; the best is on top. A line shows what each went on from, the green one ` +
    `leads to the answer${timed ? "; a step is a frame after which another text leads" : ", a square is a text that ended"}.`;
  showStep();
}

function showStep() {
  const { answer, best } = shown;
  const at = Number(byId("beam-step").value);
  const step = answer.steps[at];
  const wide = drawBeam(byId("beam-picture"), answer.steps, best, at);
  const scroll = byId("beam-picture").parentElement;
  if (at * wide < scroll.scrollLeft || (at + 1) * wide > scroll.scrollLeft + scroll.clientWidth) {
    scroll.scrollLeft = at * wide - scroll.clientWidth / 2;
  }
  byId("beam-at").textContent = step.time === null ? `${at} of ${answer.steps.length - 1}` : `at ${step.time.toFixed(2)} s`;
  const rows = step.texts.map((text, lane) => hypothesis(text, step.scores[lane], best[at] === lane ? "best" : step.ended[lane] ? "ended" : ""));
  byId("beam-list").replaceChildren(...rows, ...lost(answer.steps, at));
}

/** What was there a step before and has no child now. */
function lost(steps, at) {
  if (!at) return [];
  const going = new Set(steps[at].parents);
  const before = steps[at - 1];
  return before.texts
    .map((text, lane) => (going.has(lane) || before.ended[lane] ? null : hypothesis(text, before.scores[lane], "lost")))
    .filter(Boolean);
}

function hypothesis(text, score, kind) {
  const item = document.createElement("li");
  const value = Object.assign(document.createElement("span"), { className: "quiet", textContent: score.toFixed(2) });
  item.append(value, Object.assign(document.createElement("span"), { className: kind, textContent: text || "(nothing yet)" }));
  return item;
}

byId("inside-record").onclick = record;
byId("inside-look").onclick = look;
byId("inside-play").onclick = () => {
  const one = utterances.get(Number(byId("utterance").value));
  if (one) play(one.samples, one.rate);
};
byId("beam-step").oninput = showStep;
byId("beam-picture").onclick = ({ offsetX, target }) => {
  byId("beam-step").value = Math.floor(((offsetX - 10) / (target.clientWidth - 20)) * shown.answer.steps.length);
  showStep();
};
addEventListener("look-inside", ({ detail }) => {
  byId("utterance").value = detail;
  look();
});
onChange(show);
