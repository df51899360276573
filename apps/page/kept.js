/** Clips that the visitor keeps: in this browser's own storage, and nowhere else. */
import { play, wav } from "./sound.js";

const MOST = 100;
const byId = (name) => document.getElementById(name);

const database = new Promise((resolve, reject) => {
  const opening = indexedDB.open("voiceseq", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("clips", { keyPath: "id", autoIncrement: true });
  opening.onsuccess = () => resolve(opening.result);
  opening.onerror = () => reject(opening.error);
});

async function store(mode, action) {
  const clips = (await database).transaction("clips", mode).objectStore("clips");
  const request = action(clips);
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Keep `samples`; `kind` is false-alarm or missed, `at` where in the clip it was, `score` how sure the network was. */
export async function keep(kind, word, samples, rate, facts) {
  const clips = await store("readonly", (one) => one.getAllKeys());
  if (clips.length >= MOST) throw new Error(`${MOST} clips are kept; download and delete some first.`);
  await store("readwrite", (one) => one.add({ kind, word, samples, rate, saved: Date.now(), ...facts }));
  await show();
}

const folder = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}_]+/gu, "-").replace(/^-+|-+$/g, "") || "word";
const stamp = (clip) => new Date(clip.saved).toISOString().replace(/[-:]/g, "").replace("T", "-").replace(".", "-").slice(0, 19);
const path = (clip) => `${clip.kind}/${folder(clip.word)}/${stamp(clip)}.wav`;
const MEANING = { "false-alarm": "was not said", missed: "was missed" };

export async function show() {
  const clips = await store("readonly", (one) => one.getAll());
  byId("kept-buttons").hidden = !clips.length;
  byId("kept-list").replaceChildren(...clips.reverse().map(row));
}

function row(clip) {
  const item = document.createElement("li");
  const seconds = (clip.samples.length / clip.rate).toFixed(1);
  item.append(`“${clip.word}” ${MEANING[clip.kind]}, ${seconds} s, ${new Date(clip.saved).toLocaleString()}`);
  item.append(button("Play", () => play(clip.samples, clip.rate)));
  item.append(button("Delete", () => store("readwrite", (one) => one.delete(clip.id)).then(show)));
  return item;
}

function button(text, action) {
  const made = document.createElement("button");
  made.className = "small";
  made.textContent = text;
  made.onclick = action;
  return made;
}

/** Give `content` to the browser's downloads. */
export function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** All clips as `voiceseq wakeword retrain` wants them: saved/KIND/WORD/TIME.wav and a manifest. */
async function downloadAll() {
  const clips = await store("readonly", (one) => one.getAll());
  const rows = clips.map((clip) => JSON.stringify({
    id: `${clip.kind}-${folder(clip.word)}-${stamp(clip)}`, audio: path(clip),
    duration: clip.samples.length / clip.rate, kind: clip.kind, word: clip.word, at: clip.at, score: clip.score,
  }));
  const files = await Promise.all(
    clips.map(async (clip) => [`saved/${path(clip)}`, new Uint8Array(await wav(clip.samples, clip.rate).arrayBuffer())]),
  );
  files.push(["saved/saved.jsonl", new TextEncoder().encode(rows.map((one) => `${one}\n`).join(""))]);
  download(zip(files), "saved.zip");
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let i = 0; i < 8; i++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

function checksum(bytes) {
  let sum = ~0;
  for (const byte of bytes) sum = (sum >>> 8) ^ CRC[(sum ^ byte) & 255];
  return ~sum >>> 0;
}

/** Files [[name, bytes]] in one archive, as they are: sound does not pack. */
export function zip(files) {
  const [parts, directory] = [[], []];
  let at = 0;
  for (const [name, bytes] of files) {
    const title = new TextEncoder().encode(name);
    const head = [20, 0x0800, 0, 0, 33]; // version, names in UTF-8, stored, midnight of 1 January 1980
    const sizes = [checksum(bytes), bytes.length, bytes.length];
    const local = record(0x04034b50, head, sizes, [title.length, 0]);
    parts.push(local, title, bytes);
    directory.push(record(0x02014b50, [20, ...head], sizes, [title.length, 0, 0, 0, 0], [0, at]), title);
    at += local.length + title.length + bytes.length;
  }
  const size = directory.reduce((sum, one) => sum + one.length, 0);
  const end = record(0x06054b50, [0, 0, files.length, files.length], [size, at], [0]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

/** A signature, then in turn numbers of two bytes and of four. */
function record(signature, ...groups) {
  const bytes = [...number(signature, 4)];
  groups.forEach((group, n) => group.forEach((value) => bytes.push(...number(value, n % 2 ? 4 : 2))));
  return Uint8Array.from(bytes);
}
const number = (value, size) => Array.from({ length: size }, (_, i) => Math.floor(value / 256 ** i) % 256);

byId("kept-download").onclick = downloadAll;
byId("kept-delete").onclick = () => confirm("Delete all kept clips?") && store("readwrite", (one) => one.clear()).then(show);
show();
