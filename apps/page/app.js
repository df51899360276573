/** The page: its tabs, and what the server has to offer. */
import * as inside from "./inside.js";
import * as listen from "./listen.js";
import { ask } from "./server.js";
import * as text from "./text.js";
import * as transcribe from "./transcribe.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const AGAIN_S = 3;

export function choose(name) {
  for (const tab of tabs) {
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  document.getElementById("microphone").hidden = name === "text";
  history.replaceState(null, "", `#${name}`);
  dispatchEvent(new Event("resize")); // what was hidden could not be drawn
}

for (const tab of tabs) {
  tab.onclick = () => choose(tab.getAttribute("aria-controls"));
  tab.onkeydown = ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  };
}

async function meet() {
  const place = document.getElementById("server");
  try {
    const { data } = await (await ask("v1/models")).json();
    for (const tab of [listen, transcribe, inside, text]) tab.offer(data);
    const count = (kind, name) => `${data.filter((one) => one.kind === kind).length} ${name}`;
    place.textContent = `serves ${count("wake word", "wake-word models")}, ${count("speech", "of speech")}, ${count("text", "of text")}`;
    place.className = "";
  } catch (error) {
    place.textContent = error.message;
    place.className = "wrong";
    setTimeout(meet, AGAIN_S * 1000);
  }
}

const first = location.hash.slice(1);
choose(tabs.some((tab) => tab.getAttribute("aria-controls") === first) ? first : "listen");
addEventListener("look-inside", () => choose("inside"));
meet();
