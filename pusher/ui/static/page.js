// The page is complete without this. What it adds: parts that change are replaced as they do, ages
// count on, and commands can be copied.

const age = (from, to) => {
  const s = Math.max(0, Math.round((to - from) / 1000));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
};

// ahead is how far the clock of the server is ahead of this one, in milliseconds.
let ahead = 0;
const now = () => Date.now() + ahead;

const tellTimes = (root = document) => {
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(t.dateTime);
    if (!t.title) t.title = t.textContent + " UTC";
    if (t.className === "for") t.textContent = `for ${age(at, now())}`;
    else t.textContent = at > now() ? `in ${age(now(), at)}` : `${age(at, now())} ago`;
  }
  const clock = document.getElementById("now");
  if (clock) clock.textContent = new Date(now()).toISOString().slice(11, 19);
};

const addCopy = (root = document) => {
  if (!navigator.clipboard) return;
  for (const line of root.querySelectorAll(".cmd")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(line.querySelector("code").textContent);
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 2000);
    });
    line.append(button);
  }
};

// replace puts a part in the place of the one before, and keeps what the viewer opened, typed and is at.
const replace = ({ id, html }) => {
  let part = document.getElementById(id);
  if (!part && html && id === "problem") { // what the page was about is gone
    part = Object.assign(document.createElement("section"), { id, className: "wide trouble" });
    document.getElementById("main").prepend(part);
  }
  if (!part) return;
  const open = new Set([...part.querySelectorAll("details[open][id]")].map((d) => d.id));
  const shut = new Set([...part.querySelectorAll("details:not([open])[id]")].map((d) => d.id));
  const typed = [...part.querySelectorAll("input[id], select[id]")].map((f) => [f.id, f.value, f.checked]);
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const where = focused && (focused.id || focused.getAttribute("href"));
  part.innerHTML = html;
  for (const d of part.querySelectorAll("details[id]")) {
    if (open.has(d.id)) d.open = true;
    if (shut.has(d.id)) d.open = false;
  }
  for (const [name, value, checked] of typed) {
    const field = document.getElementById(name);
    if (field) [field.value, field.checked] = [value, checked];
  }
  if (where) (document.getElementById(where) ?? [...part.querySelectorAll("a")].find((a) => a.getAttribute("href") === where))?.focus();
  tellTimes(part);
  addCopy(part);
};

const live = (yes) => document.body.classList.toggle("lost", !yes);

const follow = () => {
  const since = document.body.dataset.event;
  if (since === undefined) return;
  const query = new URLSearchParams({ page: location.pathname + location.search, since });
  const stream = new EventSource(`/events?${query}`);
  let heard = Date.now();
  stream.addEventListener("alive", (e) => {
    heard = Date.now();
    ahead = Date.parse(e.data) - heard;
    live(true);
  });
  stream.addEventListener("part", (e) => {
    heard = Date.now();
    document.body.dataset.event = e.lastEventId || document.body.dataset.event;
    replace(JSON.parse(e.data));
  });
  // A browser connects again by itself after most failures, and not after an answer such as 503.
  stream.addEventListener("error", () => live(false));
  const check = setInterval(() => {
    if (Date.now() - heard > 15000) live(false);
    if (stream.readyState === EventSource.CLOSED) {
      clearInterval(check);
      live(false);
      setTimeout(follow, 10000 + Math.random() * 20000);
    }
  }, 1000);
  addEventListener("pagehide", () => { clearInterval(check); stream.close(); }, { once: true });
};

addEventListener("pageshow", (e) => e.persisted && follow());
tellTimes();
addCopy();
setInterval(tellTimes, 1000);
follow();
