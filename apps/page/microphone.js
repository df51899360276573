/** The microphone: one for the whole page, open while somebody listens to it. */
const WHY = {
  NotAllowedError: "The microphone was not allowed. Allow it for this page (the sign beside the address), then press start again.",
  NotFoundError: "No microphone was found. Plug one in, then press start again; files can be transcribed without one.",
  OverconstrainedError: "That microphone is gone. Choose another one.",
  NotReadableError: "The microphone is there but cannot be opened: does another program hold it?",
};
const INSECURE =
  "The browser gives no microphone to pages that come over plain http from another machine. Open this page as " +
  "http://localhost on the machine that serves it, or put https in front of it. Files can be transcribed all the same.";

class Microphone {
  listeners = new Set(); // functions of (samples, seconds captured so far)
  time = 0; // seconds captured so far, by whichever device
  rate = 0;
  opening = null;

  /** Sound goes to `listener` from now on. Rejects with a sentence for people. */
  async open(listener) {
    this.listeners.add(listener);
    try {
      await (this.opening ??= this.start());
    } catch (error) {
      this.listeners.delete(listener);
      this.opening = null;
      throw error;
    }
  }

  close(listener) {
    this.listeners.delete(listener);
    if (!this.listeners.size) this.stop();
  }

  async start() {
    if (!window.isSecureContext || !navigator.mediaDevices) throw new Error(INSECURE);
    const device = document.querySelector("#device").value;
    // as it is: what cleans speech for people also changes it for networks
    const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    if (device) audio.deviceId = { exact: device };
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      throw new Error(WHY[error.name] ?? `The microphone cannot be opened: ${error.message}`);
    }
    const [track] = this.stream.getAudioTracks();
    const { sampleRate } = track.getSettings();
    this.context = new AudioContext(sampleRate ? { sampleRate } : {}); // the device's own rate; the server resamples
    await this.context.audioWorklet.addModule("capture.js");
    await this.context.resume();
    this.rate = this.context.sampleRate;
    const node = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => this.hear(data);
    this.context.createMediaStreamSource(this.stream).connect(node);
    track.onended = () => this.lose();
    await this.listDevices();
  }

  hear(piece) {
    if (!this.listeners.size) return; // what was still on its way
    this.time += piece.length / this.rate;
    showLevel(piece);
    for (const listener of this.listeners) listener(piece, this.time);
  }

  /** Unplugged, or taken away: say so, and try again when a device appears. */
  lose() {
    if (!this.listeners.size) return;
    showTrouble("The microphone is gone. Plug it in again, or choose another one.");
    this.release();
    navigator.mediaDevices.addEventListener("devicechange", () => this.again(), { once: true });
  }

  /** Open it anew, for who listens: another device was chosen, or one came back. */
  async again() {
    this.release();
    if (!this.listeners.size) return;
    try {
      await (this.opening = this.start());
      showTrouble("");
    } catch (error) {
      this.opening = null;
      showTrouble(error.message);
    }
  }

  release() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.context?.close().catch(() => {});
    this.stream = this.context = this.opening = null;
  }

  stop() {
    this.release();
    showLevel(null);
  }

  async listDevices() {
    const select = document.querySelector("#device");
    const chosen = select.value;
    const found = (await navigator.mediaDevices.enumerateDevices()).filter((one) => one.kind === "audioinput");
    const options = found
      .filter((one) => one.deviceId && one.deviceId !== "default")
      .map((one, number) => new Option(one.label || `microphone ${number + 1}`, one.deviceId));
    select.replaceChildren(new Option("the usual one", ""), ...options);
    select.value = [...select.options].some((one) => one.value === chosen) ? chosen : "";
    document.querySelector("#rate").textContent = `${this.rate / 1000} kHz`;
  }
}

export function showTrouble(sentence) {
  const place = document.querySelector("#trouble");
  place.textContent = sentence;
  place.hidden = !sentence;
}

function showLevel(piece) {
  const meter = document.querySelector("#level");
  let peak = 0;
  for (const value of piece ?? []) peak = Math.max(peak, Math.abs(value));
  const decibels = Math.max(-60, 20 * Math.log10(peak + 1e-9));
  const before = Number(meter.getAttribute("aria-valuenow"));
  const shown = piece ? Math.max(decibels, before - 1.5) : -60; // falls slowly, as meters do
  meter.setAttribute("aria-valuenow", shown.toFixed(1));
  meter.firstElementChild.style.width = `${((shown + 60) / 60) * 100}%`;
  meter.classList.toggle("loud", shown > -1);
}

export const microphone = new Microphone();
document.querySelector("#device").addEventListener("change", () => microphone.opening && microphone.again());
