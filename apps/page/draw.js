/** Pictures on canvases, in the colours of the style sheet, sharp on any screen. */
import { HOP_S, Spectrum } from "./sound.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** 256 colours from quiet to loud, as [red, green, blue]. */
function makeRamp() {
  const [low, middle, high] = ["low", "middle", "high"].map((one) => style(`--ramp-${one}`).split(" ").map(Number));
  const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));
  return Array.from({ length: 256 }, (_, n) => (n < 128 ? mix(low, middle, n / 128) : mix(middle, high, (n - 128) / 127)));
}

let ramp = null;
const inks = new Map(); // asking the style sheet costs more than drawing
const redraws = new Set();
const colours = () => (ramp ??= makeRamp());
const ink = (name = "ink") => inks.get(name) ?? inks.set(name, style(`--${name}`)).get(name);

/** `redraw` is called when the reader turns from light to dark, or the window changes its size. */
export function onChange(redraw) {
  redraws.add(redraw);
}
function changed() {
  ramp = null;
  inks.clear();
  for (const redraw of redraws) redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
addEventListener("resize", changed);

/** `action` a few times a second, as often as the screen is drawn; until it says false. */
export function repeat(action, every = 60) {
  let last = 0;
  const again = (now) => {
    if (now - last >= every) {
      last = now;
      if (action() === false) return;
    }
    requestAnimationFrame(again);
  };
  requestAnimationFrame(again);
}

/** A context in CSS pixels, cleared; the canvas has as many real ones as the screen shows. */
export function fresh(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Levels `at(row, column)` of 0 to 255 as a canvas of a pixel each. */
function pixels(rows, columns, at) {
  const canvas = new OffscreenCanvas(Math.max(1, columns), Math.max(1, rows));
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const table = colours();
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      image.data.set(table[at(row, column)], 4 * (row * columns + column));
      image.data[4 * (row * columns + column) + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A spectrogram that runs: the last `seconds` of the microphone. Each column is painted once, into a ring. */
export class Running {
  constructor(canvas, seconds) {
    this.width = Math.round(seconds / HOP_S);
    this.ring = new OffscreenCanvas(this.width, Spectrum.bands).getContext("2d");
    Object.assign(this, { canvas, seconds, columns: [], count: 0, rest: new Float32Array(0), end: 0, rate: 0 });
    onChange(() => this.columns.forEach((one, n) => this.paint(one, this.count - this.columns.length + n)));
  }

  paint(column, number) {
    const image = this.ring.createImageData(1, Spectrum.bands);
    const table = colours();
    column.forEach((level, band) => image.data.set([...table[level], 255], 4 * (Spectrum.bands - 1 - band)));
    this.ring.putImageData(image, number % this.width, 0);
  }

  feed(samples, time, rate) {
    if (rate !== this.rate) {
      Object.assign(this, { rate, spectrum: new Spectrum(rate), columns: [], count: 0, rest: new Float32Array(0) });
    }
    const joined = new Float32Array(this.rest.length + samples.length);
    joined.set(this.rest);
    joined.set(samples, this.rest.length);
    const { hop, size } = this.spectrum;
    let at = size / 2;
    for (; at + size / 2 <= joined.length; at += hop) {
      this.columns.push(this.spectrum.column(joined, at));
      this.paint(this.columns.at(-1), this.count++);
    }
    this.rest = joined.slice(at - size / 2);
    this.end = time;
    this.columns.splice(0, this.columns.length - this.width);
  }

  /** `marks`: [{time, text}] to be shown as lines. */
  draw(marks) {
    const { context, width, height } = fresh(this.canvas);
    const [one, seam] = [width / this.width, this.count % this.width]; // the newest column is left of the seam
    const bands = Spectrum.bands;
    context.drawImage(this.ring.canvas, 0, 0, seam, bands, width - seam * one, 0, seam * one, height);
    if (this.count > seam) {
      const older = this.width - seam;
      context.drawImage(this.ring.canvas, seam, 0, older, bands, 0, 0, older * one, height);
    }
    for (const { time, text } of marks) {
      const x = width * (1 - (this.end - time) / this.seconds);
      if (x > 0) mark(context, x, height, text);
    }
  }
}

function mark(context, x, height, text) {
  context.fillStyle = ink("good");
  context.fillRect(x - 1, 0, 2, height);
  if (!text) return;
  context.font = "600 13px system-ui";
  const wide = context.measureText(text).width + 8;
  const left = Math.max(0, x - wide);
  context.fillRect(left, 0, wide, 18);
  context.fillStyle = ink("paper");
  context.fillText(text, left + 4, 13);
}

/** A curve of probabilities with its threshold. `points`: [[time, probability]]. */
export function drawTrace(canvas, points, end, seconds, threshold, marks) {
  const { context, width, height } = fresh(canvas);
  const x = (time) => width * (1 - (end - time) / seconds);
  const y = (value) => 2 + (height - 4) * (1 - value);
  context.strokeStyle = ink("alarm");
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(0, y(threshold));
  context.lineTo(width, y(threshold));
  context.stroke();
  context.setLineDash([]);
  context.strokeStyle = ink("accent");
  context.lineWidth = 2;
  context.beginPath();
  for (const [time, value] of points) if (time > end - seconds - 0.1) context.lineTo(x(time), y(value));
  context.stroke();
  for (const time of marks) if (x(time) > 0) mark(context, x(time), height, "");
}

/** The spectrogram of `samples` between two seconds of theirs. */
export function drawSound(canvas, samples, rate, start, end) {
  const { context, width, height } = fresh(canvas);
  const spectrum = new Spectrum(rate);
  const count = Math.max(1, Math.round(Math.min(600, (end - start) / HOP_S)));
  const step = ((end - start) * rate) / count;
  const columns = Array.from({ length: count }, (_, n) => spectrum.column(samples, Math.round(start * rate + n * step)));
  const image = pixels(Spectrum.bands, count, (row, column) => columns[column][Spectrum.bands - 1 - row]);
  context.drawImage(image, 0, 0, width, height);
}

const NAMES = 76; // pixels beside a map for the names of its rows

/** Named rows over time: `values` holds a byte for each row and frame. Made inside `figure`. */
export function drawMap(canvas, rows, frames, values, seconds) {
  const line = rows.length > 24 ? 14 : 18;
  canvas.style.height = `${rows.length * line + 20}px`;
  const { context, width, height } = fresh(canvas);
  const image = pixels(rows.length, frames, (row, column) => values[row * frames + column]);
  context.imageSmoothingEnabled = false;
  context.drawImage(image, NAMES, 0, width - NAMES, height - 20);
  context.fillStyle = ink();
  context.font = `${line - 4}px system-ui`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  rows.forEach((name, row) => context.fillText(shorter(name, 10), NAMES - 6, (row + 0.5) * line));
  drawSeconds(context, NAMES, width, height, seconds);
}

function drawSeconds(context, left, width, height, seconds) {
  context.fillStyle = ink("quiet");
  context.font = "11px system-ui";
  context.textAlign = "center";
  const step = seconds > 12 ? 5 : seconds > 4 ? 1 : 0.5;
  for (let at = 0; at <= seconds; at += step) {
    context.fillText(`${at} s`, Math.max(left + 10, Math.min(width - 14, left + ((width - left) * at) / seconds)), height - 9);
  }
}

/** An attention map of symbols over symbols, with names on both sides. */
export function drawAttention(canvas, rows, columns, weights) {
  const wide = Math.max(...rows.map((name) => shorter(name, 14).length)) * 8 + 12;
  const tall = Math.max(...columns.map((name) => shorter(name, 14).length)) * (columns.every((one) => one.length < 2) ? 14 : 8) + 14;
  const cell = Math.max(14, Math.min(34, (canvas.parentElement.clientWidth - wide) / columns.length));
  const size = [wide + cell * columns.length, tall + cell * rows.length];
  canvas.style.width = `${size[0]}px`;
  canvas.style.height = `${size[1]}px`;
  const { context } = fresh(canvas, ...size);
  const most = Math.max(...weights.flat());
  const image = pixels(rows.length, columns.length, (row, column) => Math.round((255 * weights[row][column]) / most));
  context.imageSmoothingEnabled = false;
  context.drawImage(image, wide, tall, cell * columns.length, cell * rows.length);
  context.fillStyle = ink();
  context.font = "13px system-ui";
  context.textBaseline = "middle";
  context.textAlign = "right";
  rows.forEach((name, row) => context.fillText(shorter(name, 14), wide - 6, tall + (row + 0.5) * cell));
  columns.forEach((name, column) => nameColumn(context, name, wide + (column + 0.5) * cell, tall - 6));
}

function nameColumn(context, name, x, y) {
  context.save();
  context.translate(x, y);
  if (name.length > 1) context.rotate(-Math.PI / 2);
  context.textAlign = name.length > 1 ? "left" : "center";
  context.fillText(shorter(name, 14), 0, name.length > 1 ? 0 : -4);
  context.restore();
}

const shorter = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

/** Steps of a beam as lanes: the best on top, lines from what each went on from; `best` are places of the winner. */
export function drawBeam(canvas, steps, best, at) {
  const [wide, tall] = [steps.length > 60 ? 12 : 26, 26];
  const lanes = Math.max(...steps.map((one) => one.texts.length));
  const size = [steps.length * wide + 20, lanes * tall + 10];
  canvas.style.width = `${size[0]}px`;
  canvas.style.height = `${size[1]}px`;
  const { context } = fresh(canvas, ...size);
  const place = (step, lane) => [10 + (step + 0.5) * wide, 5 + (lane + 0.5) * tall];
  context.fillStyle = ink("card");
  context.fillRect(10 + at * wide, 0, wide, size[1]);
  steps.forEach((step, n) =>
    step.parents.forEach((parent, lane) => {
      if (parent < 0 || !n) return;
      const won = best[n] === lane && best[n - 1] === parent;
      context.strokeStyle = ink(won ? "good" : "line");
      context.lineWidth = won ? 3 : 1.2;
      context.beginPath();
      context.moveTo(...place(n - 1, parent));
      context.lineTo(...place(n, lane));
      context.stroke();
    }),
  );
  steps.forEach((step, n) =>
    step.texts.forEach((_, lane) => {
      const [x, y] = place(n, lane);
      context.fillStyle = ink(best[n] === lane ? "good" : "quiet");
      context.beginPath();
      if (step.ended[lane]) context.rect(x - 4, y - 4, 8, 8);
      else context.arc(x, y, wide > 20 ? 4 : 2.5, 0, 7);
      context.fill();
    }),
  );
  return wide;
}
