/** Samples in the browser: the last minutes of the microphone, WAV files, playing, spectra. */

/** The last `seconds` of what was captured, in pieces; older ones are let go. */
export class Recording {
  constructor(seconds) {
    this.seconds = seconds;
    this.clear();
  }

  clear() {
    this.pieces = []; // {end, samples}
    this.rate = 0;
  }

  add(samples, end, rate) {
    if (rate !== this.rate) this.clear(); // another device
    this.rate = rate;
    this.pieces.push({ end, samples: samples.slice() });
    while (this.pieces[0].end < end - this.seconds) this.pieces.shift();
  }

  get start() {
    const [first] = this.pieces;
    return first ? first.end - first.samples.length / this.rate : 0;
  }

  get end() {
    return this.pieces.at(-1)?.end ?? 0;
  }

  /** The samples between two times of the microphone; what was let go is missing. */
  cut(start, end) {
    const wanted = this.pieces.filter((one) => one.end > start && one.end - one.samples.length / this.rate < end);
    if (!wanted.length) return new Float32Array(0);
    const joined = join(wanted.map((one) => one.samples));
    const first = wanted[0].end - wanted[0].samples.length / this.rate;
    const at = (time) => Math.max(0, Math.min(joined.length, Math.round((time - first) * this.rate)));
    return joined.slice(at(start), at(end));
  }
}

export function join(pieces) {
  const whole = new Float32Array(pieces.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of pieces) {
    whole.set(one, at);
    at += one.length;
  }
  return whole;
}

/** A WAV file of 16 bits, as a Blob. */
export function wav(samples, rate) {
  const data = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((one, i) => data.setUint8(at + i, one.charCodeAt(0)));
  text(0, "RIFF");
  data.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  data.setUint32(16, 16, true);
  data.setUint16(20, 1, true);
  data.setUint16(22, 1, true);
  data.setUint32(24, rate, true);
  data.setUint32(28, 2 * rate, true);
  data.setUint16(32, 2, true);
  data.setUint16(34, 16, true);
  text(36, "data");
  data.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, i) => data.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, value)) * 32767, true));
  return new Blob([data], { type: "audio/wav" });
}

let speaker;
let playing;

/** Play samples; what was playing stops. */
export function play(samples, rate) {
  if (!samples.length) return;
  speaker ??= new AudioContext();
  speaker.resume();
  playing?.stop();
  const buffer = speaker.createBuffer(1, samples.length, rate);
  buffer.copyToChannel(samples, 0);
  playing = new AudioBufferSourceNode(speaker, { buffer });
  playing.connect(speaker.destination);
  playing.start();
}

export const DECODED_RATE = 16000;

/** A file's sound at 16 kHz, its channels mixed; null where the browser cannot read it. */
export async function decode(file) {
  try {
    const buffer = await new OfflineAudioContext(1, 1, DECODED_RATE).decodeAudioData(await file.arrayBuffer());
    const mixed = buffer.getChannelData(0).slice();
    for (let channel = 1; channel < buffer.numberOfChannels; channel++) {
      buffer.getChannelData(channel).forEach((value, i) => (mixed[i] += value));
    }
    return buffer.numberOfChannels > 1 ? mixed.map((value) => value / buffer.numberOfChannels) : mixed;
  } catch {
    return null;
  }
}

const BANDS = 72;
const LOWEST_HZ = 60;
const HIGHEST_HZ = 8000;
export const HOP_S = 0.01;

/** Spectra as bands of pitch, each 0 to 255: quiet to loud. */
export class Spectrum {
  static bands = BANDS;

  constructor(rate) {
    this.size = 2 ** Math.ceil(Math.log2(rate * 0.02));
    this.hop = Math.round(rate * HOP_S);
    this.window = Float32Array.from({ length: this.size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / this.size));
    this.real = new Float32Array(this.size);
    this.imaginary = new Float32Array(this.size);
    const mel = (hz) => 2595 * Math.log10(1 + hz / 700);
    const hertz = (mels) => 700 * (10 ** (mels / 2595) - 1);
    const top = Math.min(HIGHEST_HZ, rate / 2);
    const edge = (n) => hertz(mel(LOWEST_HZ) + ((mel(top) - mel(LOWEST_HZ)) * n) / BANDS);
    this.edges = Array.from({ length: BANDS + 1 }, (_, n) => (edge(n) / rate) * this.size);
  }

  /** The bands of `samples` around `at`. */
  column(samples, at) {
    const { real, imaginary, size } = this;
    for (let i = 0; i < size; i++) real[i] = (samples[at + i - size / 2] ?? 0) * this.window[i];
    imaginary.fill(0);
    transform(real, imaginary);
    const column = new Uint8ClampedArray(BANDS);
    for (let band = 0; band < BANDS; band++) {
      const first = Math.floor(this.edges[band]);
      const last = Math.max(first + 1, Math.ceil(this.edges[band + 1]));
      let power = 0;
      for (let i = first; i < last; i++) power = Math.max(power, real[i] ** 2 + imaginary[i] ** 2);
      const decibels = 10 * Math.log10(power / (size / 4) ** 2 + 1e-12);
      column[band] = ((decibels + 85) / 60) * 255;
    }
    return column;
  }
}

/** The Fourier transform in place; the length is a power of two. */
function transform(real, imaginary) {
  const size = real.length;
  for (let i = 1, j = 0; i < size; i++) {
    let bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j |= bit;
    if (i < j) {
      [real[i], real[j]] = [real[j], real[i]];
      [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
    }
  }
  for (let length = 2; length <= size; length *= 2) {
    const angle = (-2 * Math.PI) / length;
    for (let k = 0; k < length / 2; k++) {
      const cosine = Math.cos(angle * k);
      const sine = Math.sin(angle * k);
      for (let i = k; i < size; i += length) {
        const j = i + length / 2;
        const re = real[j] * cosine - imaginary[j] * sine;
        const im = real[j] * sine + imaginary[j] * cosine;
        real[j] = real[i] - re;
        imaginary[j] = imaginary[i] - im;
        real[i] += re;
        imaginary[i] += im;
      }
    }
  }
}
