/** The tab Transcribe: live speech and files; every word can be heard again. */
import { drawSound, onChange } from "./draw.js";
import { addUtterance } from "./inside.js";
import { download } from "./kept.js";
import { microphone, showTrouble } from "./microphone.js";
import { Live, transcribe } from "./server.js";
import { DECODED_RATE, Recording, decode, play, wav } from "./sound.js";

const RECORDED_S = 300; // of live speech that the page remembers
const DRAWN_BYTES = 40e6; // a file that is larger is not decoded by the browser
const UNSURE = 0.6;
const byId = (name) => document.getElementById(name);
const element = (tag, fields = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...inside);
  return made;
};

const recording = new Recording(RECORDED_S);
let live = null;
let began = 0;

export function offer(served) {
  const models = served.filter((one) => one.kind === "speech");
  const before = byId("speech-model").value;
  byId("speech-model").replaceChildren(...models.map((one) => new Option(one.id)));
  if (models.some((one) => one.id === before)) byId("speech-model").value = before;
  byId("no-speech").textContent = models.length ? "" : "This server has no recogniser of speech: start it with --model BUNDLE.";
  byId("speech-model-field").hidden = !models.length;
  for (const name of ["live-go", "file"]) byId(name).disabled = !models.length;
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(1).padStart(4, "0")}`;

/** A word as a button that plays it. `sound()` gives [samples, rate] of the word, or null. */
function wordButton(word, sound) {
  const made = element("button", { className: "spoken", textContent: word.word });
  made.title = `${clock(word.start)} to ${clock(word.end)}, ${Math.round(100 * (word.confidence ?? 1))} % sure`;
  made.classList.toggle("unsure", (word.confidence ?? 1) < UNSURE);
  Object.assign(made.dataset, { start: word.start, end: word.end });
  made.onclick = () => {
    const found = sound(word.start - 0.05, word.end + 0.05);
    if (found) play(...found);
  };
  return made;
}

// --- live ---------------------------------------------------------------------------------------------------------

async function toggle() {
  if (live) return end();
  showTrouble("");
  byId("live-go").disabled = true;
  try {
    await microphone.open(hear);
    recording.clear();
    began = microphone.time;
    byId("live-text").replaceChildren();
    connect();
    state(true, "connecting …");
  } catch (error) {
    showTrouble(error.message);
  }
  byId("live-go").disabled = false;
}

function connect() {
  const mine = new Live("v1/transcribe", () => ({ rate: microphone.rate, model: byId("speech-model").value }), {
    event: take,
    state: (kind, reason) => {
      if (kind === "refused") end(reason);
      else if (kind === "waiting") state(true, `${reason}; trying again. What is said meanwhile is not heard.`);
      else if (kind === "ready") state(true, "listening: speak");
      else if (kind === "ended" && !live) state(false, "");
    },
  });
  live = mine;
}

function end(message = "writing the rest …") {
  live.stop(); // its last events still come
  live = null;
  microphone.close(hear);
  byId("live-file").hidden = !recording.pieces.length;
  state(false, message);
}

function state(on, text) {
  byId("live-go").textContent = on ? "Stop" : "Start speaking";
  byId("live-go").classList.toggle("on", on);
  byId("live-state").textContent = text;
}

function hear(samples, time) {
  recording.add(samples, time, microphone.rate);
  live?.send(samples, time, microphone.rate);
}

function take(event) {
  if (event.type === "partial") byId("live-partial").textContent = event.text;
  if (event.type !== "final") return;
  byId("live-partial").textContent = "";
  const sound = (start, end) => [recording.cut(start, end), recording.rate];
  const line = element("p", {}, element("time", { textContent: clock(event.start - began) }));
  for (const word of event.words) line.append(wordButton(word, sound), " ");
  const [samples, rate] = sound(event.start - 0.4, event.end + 0.4);
  line.append(lookButton(event.text, samples, rate));
  byId("live-text").append(line);
}

function lookButton(text, samples, rate) {
  const number = addUtterance(text, samples, rate);
  const made = element("button", { className: "small", textContent: "look inside" });
  made.onclick = () => dispatchEvent(new CustomEvent("look-inside", { detail: number }));
  return made;
}

byId("live-go").onclick = toggle;
byId("live-file").onclick = () => {
  const name = `recording ${new Date().toLocaleTimeString().replaceAll(":", "-")}.wav`;
  add(new File([wav(recording.cut(recording.start, recording.end), recording.rate)], name));
};

// --- files --------------------------------------------------------------------------------------------------------

const waiting = [];
let working = false;

function add(file) {
  const card = makeCard(file);
  byId("files").prepend(card.box);
  waiting.push(() => work(file, card));
  if (!working) next();
}

/** One file after the other: the server has other guests. */
async function next() {
  working = true;
  while (waiting.length) await waiting.shift()();
  working = false;
}

function makeCard(file) {
  const card = {
    progress: element("progress", { max: 1, value: 0 }),
    state: element("p", { className: "quiet", textContent: "waiting" }),
    text: element("div", { className: "transcript" }),
  };
  card.progress.setAttribute("aria-label", `Progress of ${file.name}`);
  card.state.setAttribute("role", "status");
  card.box = element("article", { className: "file" }, element("h3", { textContent: file.name }), card.state, card.progress, card.text);
  card.box.dataset.state = "working";
  return card;
}

async function work(file, card) {
  const sound = file.size <= DRAWN_BYTES ? await decode(file) : null;
  const whole = sound ? sound.length / DECODED_RATE : null;
  card.state.textContent = "sending";
  try {
    const done = await transcribe(file, byId("speech-model").value, {
      sent: (share) => {
        card.progress.value = share * 0.1;
        if (share === 1) card.state.textContent = "the server reads it";
      },
      read: (seconds) => {
        card.state.textContent = `heard ${clock(seconds)}${whole ? ` of ${clock(whole)}` : ""}`;
        if (whole) card.progress.value = 0.1 + (0.9 * seconds) / whole;
        else card.progress.removeAttribute("value");
      },
      text: (piece) => card.text.append(piece),
    });
    finish(file, card, done, sound);
  } catch (error) {
    card.box.dataset.state = "failed";
    card.progress.remove();
    card.state.className = "wrong";
    card.state.textContent = error.message;
  }
}

function finish(file, card, done, sound) {
  card.box.dataset.state = "done";
  card.progress.remove();
  const count = done.words.length;
  card.state.textContent = `${clock(done.duration)}, ${count} ${count === 1 ? "word" : "words"}${sound ? ". Press a word to hear it." : ". The browser cannot play this file, so there is no picture."}`;
  const part = sound && ((start, end) => [sound.slice(Math.max(0, start * DECODED_RATE), end * DECODED_RATE), DECODED_RATE]);
  const sure = new Map(JSON.parse(done.files.json).segments.flatMap((one) => one.words).map((one) => [one.start, one.confidence]));
  for (const word of done.words) word.confidence = sure.get(word.start);
  card.text.replaceChildren(...done.segments.map((segment) => paragraph(segment, done.words, part)));
  if (!count) card.text.textContent = "Nobody speaks in it.";
  if (sound && count) card.text.before(timeline(sound, done.words, part));
  const buttons = Object.entries(done.files).map(([kind, content]) =>
    element("button", { className: "small", textContent: `Download ${kind}`, onclick: () => download(new Blob([content], { type: "text/plain" }), `${file.name.replace(/\.[^.]*$/, "")}.${kind}`) }),
  );
  card.box.append(element("div", { className: "bar" }, ...buttons));
}

function paragraph(segment, words, part) {
  const line = element("p", {}, element("time", { textContent: clock(segment.start) }));
  const mine = words.filter((one) => one.start >= segment.start - 1e-3 && one.end <= segment.end + 1e-3);
  for (const word of mine) {
    const made = wordButton(word, part ?? (() => null));
    made.disabled = !part;
    line.append(made, " ");
  }
  if (part) line.append(lookButton(segment.text, ...part(segment.start - 0.4, segment.end + 0.4)));
  return line;
}

/** The spectrogram with the words where they were said; a slider moves along a long file. */
function timeline(sound, words, part) {
  const whole = sound.length / DECODED_RATE;
  const shown = () => Math.min(whole, innerWidth < 640 ? 3 : 9);
  const canvas = element("canvas", { className: "picture" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Spectrogram with the words over it");
  const box = element("div", { className: "timeline" }, canvas);
  const slider = element("input", { type: "range", min: 0, step: 0.1, value: 0 });
  slider.setAttribute("aria-label", "Where in the file, in seconds");
  const figure = element("figure", {}, box, slider);
  slider.style.width = "100%";
  const draw = () => {
    if (!canvas.clientWidth) return;
    slider.max = Math.max(0, whole - shown());
    slider.hidden = whole <= shown();
    const from = slider.hidden ? 0 : Number(slider.value);
    drawSound(canvas, sound, DECODED_RATE, from, from + shown());
    box.replaceChildren(canvas, ...words.filter((one) => one.end > from && one.start < from + shown()).map((one, n) => over(one, n, from, shown(), part)));
  };
  slider.oninput = draw;
  onChange(draw);
  requestAnimationFrame(draw);
  return figure;
}

function over(word, number, from, seconds, part) {
  const made = wordButton(word, part);
  made.tabIndex = -1; // the same words are below, in the order of reading
  made.style.left = `${(100 * Math.max(0, word.start - from)) / seconds}%`;
  made.style.minWidth = `${(100 * (word.end - Math.max(from, word.start))) / seconds}%`;
  made.style.top = `${0.2 + 1.4 * (number % 3)}rem`; // neighbours that are short need room
  return made;
}

const drop = byId("drop");
byId("file").onchange = () => {
  [...byId("file").files].forEach(add);
  byId("file").value = "";
};
for (const name of ["dragenter", "dragover"]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
}
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (!byId("file").disabled) [...event.dataTransfer.files].forEach(add);
});
