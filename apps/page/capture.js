/* Runs in the audio thread: the microphone's samples, its channels mixed, in pieces of about 20 ms. */
class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.piece = new Float32Array(Math.round(sampleRate / 50));
    this.filled = 0;
  }

  process([channels]) {
    if (!channels.length) return true; // nothing is connected yet
    for (let i = 0; i < channels[0].length; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      this.piece[this.filled++] = sum / channels.length;
      if (this.filled === this.piece.length) {
        this.port.postMessage(this.piece);
        this.filled = 0;
      }
    }
    return true;
  }
}
registerProcessor("capture", Capture);
