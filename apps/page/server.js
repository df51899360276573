/** Talking to the server: requests with the token, uploads, and live streams that outlive a restart. */
const KEY = "voiceseq-token";
const LONGEST_S = 5; // of sound that waits to be sent; what is more is dropped, and said
const WAITS_S = [0.3, 0.6, 1, 2, 3, 5];

const token = () => sessionStorage.getItem(KEY) ?? "";

/** Ask the user for the token; resolves when there is one. */
function askForToken() {
  const dialog = document.querySelector("#token");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, document.querySelector("#token-input").value);
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

/** `fetch` whose errors are sentences. */
export async function ask(path, options = {}) {
  const headers = token() ? { ...options.headers, Authorization: `Bearer ${token()}` } : options.headers;
  let reply;
  try {
    reply = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server cannot be reached: is `voiceseq serve` running?");
  }
  if (reply.status === 401) {
    await askForToken();
    return ask(path, options);
  }
  if (!reply.ok) throw new Error(reason(await reply.text(), reply.status));
  return reply;
}

function reason(text, status) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `the server answered ${status}`;
  }
}

export const askJson = async (path, body) =>
  (await ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();

/** A file to be transcribed, with news on the way: `sent` (0 to 1), `read` (seconds), `text` (a piece). */
export function transcribe(file, model, news) {
  const form = new FormData();
  form.append("model", model);
  form.append("stream", "true");
  form.append("response_format", "verbose_json");
  for (const name of ["word", "segment"]) form.append("timestamp_granularities[]", name);
  for (const name of ["srt", "vtt", "json"]) form.append("files[]", name);
  form.append("file", file, file.name);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not say how much has been sent
    let at = 0;
    const read = () => {
      const lines = request.responseText.slice(at).split("\n\n");
      at += request.responseText.length - at - lines.pop().length;
      for (const line of lines) tell(line, news, resolve, reject);
    };
    request.upload.onprogress = ({ loaded, total }) => news.sent(loaded / total);
    request.onprogress = () => request.status === 200 && read();
    request.onload = () => {
      if (request.status === 200) read();
      else reject(new Error(reason(request.responseText, request.status)));
    };
    request.onloadend = () => reject(new Error("The connection to the server was lost; drop the file again."));
    request.open("POST", "v1/audio/transcriptions");
    if (token()) request.setRequestHeader("Authorization", `Bearer ${token()}`);
    request.send(form);
  });
}

function tell(line, news, resolve, reject) {
  if (line.startsWith(": ")) {
    news.read(parseFloat(line.slice(2)) || 0);
    return;
  }
  const event = JSON.parse(line.replace(/^data: /, ""));
  if (event.error) reject(new Error(event.error.message));
  else if (event.type === "transcript.text.delta") news.text(event.delta);
  else if (event.type === "transcript.text.done") resolve(event);
}

/**
 * A live stream at `path`. `order()` gives its first message; `on.event` hears what the server says, with times counted as
 * the microphone counts them; `on.state` hears how the connection is. It connects again until it is stopped.
 */
export class Live {
  constructor(path, order, on) {
    Object.assign(this, { path, order, on, tries: 0, lost: 0, base: null, stopped: false });
    this.connect();
  }

  connect() {
    const url = new URL(this.path, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    if (token()) url.searchParams.set("token", token());
    this.base = null;
    this.socket = new WebSocket(url);
    this.socket.onopen = () => {
      const order = this.order();
      this.rate = order.rate;
      this.socket.send(JSON.stringify({ format: "s16le", ...order }));
    };
    this.socket.onmessage = ({ data }) => this.hear(JSON.parse(data));
    this.socket.onclose = ({ code, reason }) => this.closed(code, reason);
  }

  hear(event) {
    if (event.type === "ready") {
      this.tries = 0;
      this.on.state("ready");
    }
    for (const key of ["time", "start", "end"]) if (key in event) event[key] += this.base ?? 0;
    for (const word of event.words ?? []) if (word.word) (word.start += this.base ?? 0), (word.end += this.base ?? 0);
    this.on.event(event);
  }

  /** Samples that end at `time`, in seconds of the microphone; one of another rate is another stream. */
  send(samples, time, rate) {
    if (this.rate && rate !== this.rate && this.socket.readyState === WebSocket.OPEN) this.socket.close(4000, "another microphone");
    if (this.socket.readyState !== WebSocket.OPEN || this.socket.bufferedAmount > LONGEST_S * this.rate * 2) {
      this.lost += samples.length / (this.rate || samples.length * 50);
      return;
    }
    this.base ??= time - samples.length / this.rate;
    const whole = new Int16Array(samples.length);
    for (let i = 0; i < samples.length; i++) whole[i] = Math.max(-1, Math.min(1, samples[i])) * 32767;
    this.socket.send(whole);
  }

  tellThresholds(thresholds) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "thresholds", thresholds }));
  }

  /** Nothing more will be said; what is still on its way arrives. */
  stop() {
    this.stopped = true;
    clearTimeout(this.waiting);
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "finish" }));
    else this.socket.close();
  }

  async closed(code, reason) {
    if (this.stopped) return this.on.state("ended");
    if (code === 1003) {
      this.stopped = true;
      return this.on.state("refused", reason);
    }
    const seconds = WAITS_S[Math.min(this.tries++, WAITS_S.length - 1)];
    this.on.state("waiting", code === 1012 ? "The server is being restarted" : "No connection to the server");
    this.waiting = setTimeout(async () => {
      // a refused WebSocket does not say why; the same question over HTTP does, and asks for a missing token
      if (this.tries > 1) await ask("v1/models").catch(() => {});
      if (!this.stopped) this.connect();
    }, seconds * 1000);
  }
}
