/** The tab Listen: the microphone to /v1/listen, and what each word's network says of it. */
import { Running, drawTrace, onChange, repeat } from "./draw.js";
import { keep } from "./kept.js";
import { microphone, showTrouble } from "./microphone.js";
import { Live } from "./server.js";
import { Recording } from "./sound.js";

const SECONDS = 8; // that the pictures show
const BEFORE_S = 3; // of a clip before a detection, or before "you missed me"
const AFTER_S = 0.5;
const MOST = 50; // detections that are listed
const byId = (name) => document.getElementById(name);

const picture = new Running(byId("listen-picture"), SECONDS);
const recording = new Recording(BEFORE_S + SECONDS);
const settings = JSON.parse(localStorage.getItem("voiceseq-thresholds") ?? "{}");
let live = null;
let words = []; // {name, row, canvas, threshold, frame_s, frames, points, marks}
let models = [];

export function offer(served) {
  models = served.filter((one) => one.kind === "wake word");
  const boxes = models.map((one) => {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", value: one.id, onchange: chosen });
    label.append(box, ` ${one.id}${one.words.length > 1 ? ` (${one.words.join(", ")})` : ""}`);
    return label;
  });
  byId("listen-models").replaceChildren(byId("listen-models").firstElementChild, ...boxes);
  byId("listen-go").disabled = !models.length;
  if (!models.length) byId("listen-state").textContent = "This server has no wake words: start it with --model BUNDLE.";
}

const boxes = () => [...byId("listen-models").querySelectorAll("input")];
const wanted = () => boxes().filter((one) => one.checked).map((one) => one.value);

/** A word can be of one model only; the others that have it are greyed. */
function chosen() {
  const taken = new Set(models.filter((one) => wanted().includes(one.id)).flatMap((one) => one.words));
  for (const box of boxes()) {
    box.disabled = !box.checked && models.find((one) => one.id === box.value).words.some((word) => taken.has(word));
  }
  if (live) restart();
}

function restart() {
  live.stop();
  connect();
}

async function toggle() {
  if (live) return end();
  showTrouble("");
  byId("listen-go").disabled = true;
  try {
    await microphone.open(hear);
    connect();
    state(true, "connecting …");
    repeat(draw);
  } catch (error) {
    showTrouble(error.message);
  }
  byId("listen-go").disabled = false;
}

function end(message = "") {
  live?.stop();
  live = null;
  microphone.close(hear);
  state(false, message);
}

function state(on, text) {
  byId("listen-go").textContent = on ? "Stop listening" : "Start listening";
  byId("listen-go").classList.toggle("on", on);
  byId("listen-state").textContent = text;
}

function connect() {
  const mine = new Live("v1/listen", () => ({ rate: microphone.rate, models: wanted(), scores: true }), {
    event: (event) => mine === live && take(event),
    state: (kind, reason) => mine === live && changed(kind, reason),
  });
  live = mine;
}

function changed(kind, reason) {
  if (kind === "refused") end(reason);
  else if (kind === "waiting") state(true, `${reason}; trying again. What is said meanwhile is not heard.`);
  else if (kind === "ready") state(true, "listening");
}

function hear(samples, time) {
  recording.add(samples, time, microphone.rate);
  picture.feed(samples, time, microphone.rate);
  live?.send(samples, time, microphone.rate);
}

function take(event) {
  if (event.type === "ready") showWords(event);
  else if (event.type === "scores") follow(event);
  else if (event.type === "detection") detected(event);
}

function showWords({ words: names, thresholds, models: homes, frame_s }) {
  const known = Object.fromEntries(words.map((one) => [one.name, one]));
  words = names.map((name) => known[name] ?? makeWord(name, homes[name], thresholds[name]));
  for (const one of words) Object.assign(one, { frame_s, frames: 0, points: [], marks: [] });
  byId("listen-words").replaceChildren(...words.map((one) => one.row));
  live.tellThresholds(Object.fromEntries(words.map((one) => [one.name, one.threshold])));
}

/** One word: its name, its slider, "you missed me", its trace. */
function makeWord(name, model, threshold) {
  const row = Object.assign(document.createElement("div"), { className: "word" });
  row.dataset.word = name;
  const one = { name, model, row, threshold: settings[name] ?? threshold };
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 0.02, max: 1, step: 0.01 });
  const value = document.createElement("output");
  slider.value = one.threshold;
  value.textContent = Number(one.threshold).toFixed(2);
  slider.oninput = () => {
    one.threshold = Number(slider.value);
    value.textContent = one.threshold.toFixed(2);
    settings[name] = one.threshold;
    localStorage.setItem("voiceseq-thresholds", JSON.stringify(settings));
    live?.tellThresholds({ [name]: one.threshold });
  };
  const label = document.createElement("label");
  label.append("Threshold", slider, value);
  const missed = Object.assign(document.createElement("button"), { className: "small", textContent: "You missed me" });
  missed.onclick = () => keepClip("missed", name, recording.end, missed, {});
  one.canvas = document.createElement("canvas");
  one.canvas.setAttribute("role", "img");
  one.canvas.setAttribute("aria-label", `How sure the network of ${name} was in the last seconds`);
  const bar = Object.assign(document.createElement("div"), { className: "bar" });
  const title = Object.assign(document.createElement("strong"), { textContent: name });
  bar.append(title, label, missed);
  row.append(bar, one.canvas);
  return one;
}

/** Probabilities of new frames, which are counted: what the server has heard is seldom a whole number of them. */
function follow({ scores }) {
  words.forEach((one, number) => {
    for (const frame of scores) one.points.push([live.base + ++one.frames * one.frame_s, frame[number]]);
    one.points.splice(0, one.points.length - Math.ceil((SECONDS + 1) / one.frame_s));
  });
}

function detected(event) {
  const one = words.find((word) => word.name === event.word);
  one?.marks.push(event.time);
  one?.marks.splice(0, one.marks.length - 20);
  one?.row.classList.add("heard");
  setTimeout(() => one?.row.classList.remove("heard"), 1500);
  byId("no-detections").hidden = true;
  byId("detections").prepend(listed(event));
  while (byId("detections").children.length > MOST) byId("detections").lastElementChild.remove();
}

function listed(event) {
  const item = document.createElement("li");
  Object.assign(item.dataset, { word: event.word, time: event.time, shown: microphone.time });
  const clock = new Date().toLocaleTimeString();
  const wrong = Object.assign(document.createElement("button"), { className: "small", textContent: "That was wrong" });
  wrong.onclick = () => keepClip("false-alarm", event.word, event.time + AFTER_S, wrong, { score: event.score });
  const name = Object.assign(document.createElement("strong"), { textContent: event.word });
  const facts = Object.assign(document.createElement("span"), { textContent: `${clock}, score ${event.score.toFixed(2)}` });
  item.append(name, facts, wrong);
  return item;
}

async function keepClip(kind, word, until, pressed, facts) {
  const samples = recording.cut(until - BEFORE_S - AFTER_S, until);
  if (!samples.length) {
    state(Boolean(live), "That sound is gone: it is kept for a few seconds only.");
    return;
  }
  try {
    await keep(kind, word, samples, recording.rate, { at: samples.length / recording.rate - (kind === "missed" ? 0 : AFTER_S), ...facts });
    const before = pressed.textContent;
    pressed.textContent = "kept below";
    setTimeout(() => (pressed.textContent = before), 2000);
  } catch (error) {
    state(Boolean(live), error.message);
  }
}

/** False when nobody listens any more. */
function draw() {
  if (!live) return false;
  if (picture.drawn !== picture.end) paint();
  return true;
}

function paint() {
  if (byId("listen").hidden) return;
  picture.drawn = picture.end;
  picture.draw(words.flatMap((one) => one.marks.map((time) => ({ time, text: one.name }))));
  for (const one of words) drawTrace(one.canvas, one.points, picture.end, SECONDS, one.threshold, one.marks);
}

byId("listen-go").onclick = toggle;
onChange(paint);
