"use strict";
/* The dashboard: reads /api/v1/events with fetch(), which can send a token (EventSource cannot).
 * Everything that weir reports is inserted as text, never as HTML: clients choose their names. */

const KEPT = 600; /* samples in the charts: ten minutes */
const $ = (id) => document.getElementById(id);
const history = [];
let latest = null, paused = false, token = sessionStorage.getItem("weir-token"), stream = null, retryTimer = 0;

/* --- Numbers ------------------------------------------------------------------------------------ */

const whole = new Intl.NumberFormat("en");
function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n >= 1e6) return (n / 1e6).toFixed(2) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(1) + " k";
  return n >= 100 || Number.isInteger(n) ? whole.format(Math.round(n)) : n.toFixed(1);
}
function duration(s) {
  if (s === null || s === undefined) return "–";
  if (s < 0.001) return Math.round(s * 1e6) + "\u00a0µs";
  if (s < 1) return (s * 1e3).toFixed(s < 0.01 ? 2 : s < 0.1 ? 1 : 0) + "\u00a0ms";
  return s.toFixed(s < 10 ? 2 : 1) + "\u00a0s";
}
function span(s) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const i = Math.max(0, units.findIndex(([, n]) => s >= n));
  const [unit, n] = s < 1 ? ["s", 1] : units[i];
  const rest = i < 2 && s >= 60 ? Math.floor((s % n) / units[i + 1][1]) : 0;
  return Math.floor(s / n) + " " + unit + (rest ? " " + rest + " " + units[i + 1][0] : "");
}
/* All of it, for instance "1 min 30 s". */
function period(s) {
  if (s < 1) return duration(s);
  const parts = [];
  for (const [unit, n] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = n === 1 ? Math.round(s * 1e3) / 1e3 : Math.floor(s / n);
    if (count) parts.push(count + " " + unit);
    s -= count * n;
  }
  return parts.join(" ");
}

/* --- Elements ----------------------------------------------------------------------------------- */

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key === "onclick") node.addEventListener("click", value);
    else if (key === "className") node.className = value;
    else if (value !== false && value !== null) node.setAttribute(key, value === true ? "" : value);
  node.append(...children.filter((child) => child !== null));
  return node;
}
function text(id, value) {
  if ($(id).textContent !== value) $(id).textContent = value;
}
function sentence(words) {
  return words[0].toUpperCase() + words.slice(1) + ".";
}
function number(value, title = null) {
  return element("td", { className: "number", title }, value);
}

/* Replaces the rows unless they are equal, so that focus and selection stay. */
function rows(id, list, empty) {
  const body = $(id).tBodies[0], columns = $(id).tHead.rows[0].cells.length;
  const key = JSON.stringify(list.map((row) => row.key));
  if (body.dataset.key === key && list.length) {
    list.forEach((row, i) => row.cells.forEach((cell, c) => {
      const old = body.rows[i].cells[c], fresh = cell.textContent;
      if (old.textContent !== fresh || old.className !== cell.className) old.replaceWith(cell);
    }));
    return;
  }
  body.dataset.key = key;
  const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
  if (list.length)
    body.replaceChildren(...list.map((row) => element("tr", {}, ...row.cells)));
  else
    body.replaceChildren(element("tr", {}, element("td", { className: "empty", colspan: columns }, empty)));
  if (focused) [...body.querySelectorAll("button")].find((b) => b.textContent === focused)?.focus();
}
function clientLink(name) {
  return element("td", {}, element("button", { className: "link", type: "button", onclick: () => inspect(name, true) }, name));
}

/* --- Charts ------------------------------------------------------------------------------------- */

const SVG = "http://www.w3.org/2000/svg";
function draw(parent, name, attributes, content) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (content !== undefined) node.textContent = content;
  parent.append(node);
  return node;
}
function niceStep(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4 || 1));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => most / step <= 4) || power;
}
/* The scale of an axis: its labelled values, and the share of the height of each value. */
function linear(values) {
  const most = Math.max(1, ...values), step = Math.max(1, niceStep(most)), end = Math.ceil(most / step) * step;
  const ticks = [];
  for (let v = 0; v <= end + step / 2; v += step) ticks.push(v);
  return { ticks, at: (v) => v / end, label: rate };
}
function logarithmic(values) {
  const positive = values.filter((v) => v > 0);
  const low = positive.length ? Math.floor(Math.log10(Math.min(...positive))) : -1;
  const high = Math.max(low + 1, positive.length ? Math.ceil(Math.log10(Math.max(...positive))) : 2);
  const ticks = [];
  for (let p = low; p <= high; p++) ticks.push(10 ** p);
  return { ticks, at: (v) => (Math.log10(Math.max(v, 10 ** low)) - low) / (high - low), label: (v) => String(Number(v.toPrecision(2))) };
}

/* series: [name, function of a snapshot to a number or null]. Gaps stay empty. */
function chart(id, series, scaleOf) {
  const box = $(id), width = box.clientWidth, height = box.clientHeight - 24, left = 44, right = 6, top = 8, bottom = 18;
  const svg = document.createElementNS(SVG, "svg");
  const now = latest ? latest.time : 0, age = history.length ? now - history[0].time : 0;
  const seconds = Math.min(KEPT, 60 * Math.max(1, Math.ceil(age / 60))); /* the window grows up to ten minutes */
  const values = series.map(([, value]) => history.map(value));
  const scale = scaleOf(values.flat().filter((v) => v !== null));
  const x = (t) => left + (width - left - right) * (1 - (now - t) / seconds);
  const y = (v) => top + (height - top - bottom) * (1 - scale.at(v));
  const newest = values.map((list) => list[list.length - 1]);

  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", series.map(([name], i) => `${name} now ${scale.label(newest[i] ?? 0)}`).join(", "));
  for (const tick of scale.ticks) {
    draw(svg, "line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick) });
    draw(svg, "text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, scale.label(tick));
  }
  const step = seconds / (width > 400 && seconds === 300 ? 5 : width > 400 && seconds % 240 === 0 ? 4 : seconds === 600 && width > 400 ? 5 : 2);
  for (let ago = 0; ago <= seconds; ago += step)
    draw(svg, "text", { x: x(now - ago), y: height - 3, "text-anchor": ago === 0 ? "end" : ago === seconds ? "start" : "middle" }, when(ago));
  values.forEach((list, i) => {
    let line = "", area = "", start = null, last = null;
    const close = () => { if (start !== null) area += `L${last} ${y(scale.ticks[0])}L${start} ${y(scale.ticks[0])}Z`; start = null; };
    list.forEach((value, k) => {
      const gap = k && history[k].time - history[k - 1].time > 5;
      if (value === null || gap) close();
      if (value === null) return;
      const px = x(history[k].time).toFixed(1), point = `${px} ${y(value).toFixed(1)}`;
      line += start === null ? `M${point}h0` : `L${point}`; /* h0: a second alone is a dot */
      area += (start === null ? "M" : "L") + point;
      if (start === null) start = px;
      last = px;
    });
    close();
    if (i === 0) draw(svg, "path", { d: area || "M0 0", class: "area area-1" });
    draw(svg, "path", { d: line || "M0 0", class: `line-${i + 1}` });
  });
  if (!values.flat().some((v) => v !== null))
    draw(svg, "text", { x: (width + left) / 2, y: height / 2, "text-anchor": "middle", class: "none" }, "no data yet");
  box.replaceChildren(svg, element("div", { className: "legend" }, ...series.map(([name], i) =>
    element("span", {}, element("i", { className: `swatch-${i + 1}` }), name))));
}

function when(ago) {
  return ago === 0 ? "now" : ago % 60 ? (ago > 60 ? `−${ago / 60} min` : `−${ago} s`) : `−${ago / 60} min`;
}

const REJECTED = ["limited", "prohibited", "failed_closed"];
const sumOf = (member) => (decisions, names) => names.reduce((sum, name) => sum + (decisions[name]?.[member] ?? 0), 0);
const perSecond = sumOf("per_second"), total = sumOf("total");
function others(decisions) {
  return Object.keys(decisions).filter((name) => !REJECTED.includes(name) && name !== "not_charged");
}
const ms = (s) => (s === null ? null : s * 1000);

function charts() {
  const calls = (name) => (s) => s.rate_limit_service ? s.rate_limit_service[name].per_second : null;
  chart("chart-requests", [["all", (s) => s.interval_seconds && perSecond(s.decisions, Object.keys(s.decisions))],
    ["rejected", (s) => s.interval_seconds && perSecond(s.decisions, REJECTED)],
    ...(latest?.rate_limit_service ? [["calls", calls("calls")], ["calls over limit", calls("over_limit")]] : [])], linear);
  chart("chart-latency", [["p50", (s) => ms(s.latency.requests.p50_seconds)], ["p99", (s) => ms(s.latency.requests.p99_seconds)]], logarithmic);
  chart("chart-redis", [["p50", (s) => ms(s.latency.redis.p50_seconds)], ["p99", (s) => ms(s.latency.redis.p99_seconds)]], logarithmic);
}

/* --- A snapshot --------------------------------------------------------------------------------- */

function redisState(s) {
  if (!s.redis) return ["not needed", "", "no limit uses it"];
  const open = s.redis.breaker.open, all = s.workers.length, r = s.latency.redis;
  const detail = `${rate(s.redis.calls.per_second)} calls/s` +
    (r.p99_seconds === null ? "" : `, p99 ${duration(r.p99_seconds)}`);
  if (open === all || s.redis.ready_workers === 0) return ["down", "bad", `${s.redis.address}: on_failure decides`];
  if (s.redis.failures.per_second && s.redis.ready_workers === all)
    return ["errors", "warn", `${rate(s.redis.failures.per_second)} decisions/s by on_failure`];
  if (s.redis.ready_workers < all) return ["degraded", "warn", `${s.redis.ready_workers} of ${all} workers connected`];
  return [r.p50_seconds === null ? "up" : duration(r.p50_seconds), "good", detail];
}

function tiles(s) {
  const decided = s.interval_seconds ? perSecond(s.decisions, Object.keys(s.decisions)) : null;
  const rejected = s.interval_seconds ? perSecond(s.decisions, REJECTED) : null;
  const [word, level, detail] = redisState(s);
  text("now-requests", rate(decided));
  text("now-active", `${rate(s.requests.active)} in progress, ${rate(s.requests.connections)} connection${s.requests.connections === 1 ? "" : "s"}`);
  text("now-rejected", rate(rejected));
  text("now-share", decided ? `${(100 * rejected / decided).toFixed(1)} % of requests` + (s.requests.failed.per_second ? `; ${rate(s.requests.failed.per_second)} errors/s` : "") : "no requests");
  text("now-latency", s.latency.requests.count ? `${duration(s.latency.requests.p50_seconds)} / ${duration(s.latency.requests.p99_seconds)}` : "–");
  text("now-upstream", s.latency.upstream_total.count ? `servers: ${duration(s.latency.upstream_total.p50_seconds)} / ${duration(s.latency.upstream_total.p99_seconds)}` : "");
  const service = s.rate_limit_service;
  $("calls").hidden = !service;
  if (service) {
    const n = service.calls.per_second, errors = service.errors.per_second;
    text("now-calls", rate(n));
    text("now-over", n ? `${(100 * service.over_limit.per_second / n).toFixed(1)} % over limit, p99 ${duration(service.latency.p99_seconds)}` + (errors ? `; ${rate(errors)} errors/s` : "") : "no calls");
  }
  text("now-redis", word);
  $("now-redis").className = level;
  text("now-redis-detail", detail);
}

/* Requests of a server that ended, per second. */
function serverRequests(x) {
  if (x.errors.per_second === null) return null;
  return x.errors.per_second + Object.values(x.responses).reduce((sum, c) => sum + c.per_second, 0);
}
function failures(answered, errors) {
  const n = answered === null ? null : answered + errors;
  return element("td", { className: n > 0 ? "number bad" : "number", title: `5xx ${rate(answered)}/s, errors ${rate(errors)}/s` }, rate(n));
}

/* A problem is shown by its own text, unless a line with more details is. */
function alerts(s) {
  const found = [], said = ["stopping"], redis = redisState(s)[0];
  const down = s.upstreams.flatMap((u) => u.servers.filter((x) => x.state !== "up").map((x) => `${x.name || x.address} (${u.name}) is ${x.state}`));
  if (redis === "down") {
    found.push(`Redis is down at ${s.redis.address}. Limits follow on_failure of the policy.`);
    said.push("redis_denies", "redis_unavailable");
  }
  if (redis === "errors" && s.redis.failures.per_second > 0.9 * s.redis.decisions.per_second) {
    found.push(`Redis at ${s.redis.address} answers calls with errors or too late. Limits follow on_failure of the policy; the log has the cause.`);
    said.push("redis_denies", "redis_errors");
  }
  if (down.length) found.push(`Servers: ${down.slice(0, 4).join(", ")}${down.length > 4 ? ` and ${down.length - 4} more` : ""}.`);
  s.problems.filter((p) => !said.includes(p.name)).forEach((p) => found.push(sentence(p.text)));
  if (s.state === "stopping") found.push("weir is stopping.");
  text("alert", found.join(" "));
  $("alert").hidden = !found.length;
}

function tables(s) {
  const cost = new Map(s.top.cost.map((c) => [c.client, c]));
  const about = (c) => !c ? number("–") : c.at_most === c.at_least ? number(whole.format(c.at_least))
    : number(whole.format(c.at_least) + "+", `at least ${whole.format(c.at_least)}, at most ${whole.format(c.at_most)}`);
  const seconds = Math.round(s.top.seconds), recent = seconds > 0 && seconds < 60 ? `last ${seconds} s` : "last minute";
  text("busiest-window", recent);
  text("limited-window", recent);
  rows("busiest", s.top.allowed.slice(0, 10).map((c) => ({ key: c.client, cells: [clientLink(c.client), about(c), about(cost.get(c.client))] })),
    "No request was admitted in the last minute.");
  rows("limited", s.top.limited.slice(0, 10).map((c) => ({ key: c.client, cells: [clientLink(c.client), about(c), number(rate(c.at_least / Math.max(1, s.top.seconds)))] })),
    "Nobody was rejected in the last minute.");
  rows("limits", s.limits.map((l) => ({ key: l.name, cells: [
    element("td", {}, l.name, element("small", {}, `${whole.format(l.limit)} ${l.period_seconds === null ? "in flight" : "per " + period(l.period_seconds)}, ${l.script}${l.shadow ? ", shadow" : ""}${l.decisions.shadow ? ": would reject " + rate(l.decisions.shadow.per_second) + "/s" : ""}`),
      l.units ? element("small", {}, `${rate(l.units.per_second)} units/s, ${whole.format(l.units.total)} in total`) : null),
    number(rate(perSecond(l.decisions, others(l.decisions)))), number(rate(perSecond(l.decisions, REJECTED))), number(whole.format(total(l.decisions, REJECTED)))] })),
    "The policy has no limits.");
  const decided = (name, r, about) => ({ key: name, cells: [element("td", {}, name, element("small", {}, about)),
    number(rate(perSecond(r.decisions, others(r.decisions)))), number(rate(perSecond(r.decisions, REJECTED))), number(whole.format(total(r.decisions, Object.keys(r.decisions))))] });
  rows("rules", [
    ...s.rules.filter((r) => r.name !== "(none)" || total(r.decisions, Object.keys(r.decisions)))
      .map((r) => decided(r.name === "(none)" ? "no rule" : r.name, r, r.limits.join(", ") || "no limits")),
    ...s.priorities.map((p) => decided(`priority ${p.name}`, p, `may use ${Number((p.share * 100).toFixed(4))}% of shared limits`))], "The policy has no rules.");
  rows("servers", s.upstreams.flatMap((u) => u.servers.map((x) => ({ key: [u.name, x.address, x.name], cells: [
    element("td", {}, x.address || "–", x.name ? element("small", {}, x.name) : null), element("td", {}, u.name),
    element("td", { className: x.state === "up" ? "good" : "bad" }, x.state + (x.ejected_by_workers ? ` (${x.ejected_by_workers} workers)` : ""))] }))), "The policy has no servers.");
  rows("server-rates", s.servers.map((x) => ({ key: [x.upstream, x.server], cells: [
    element("td", {}, x.server, element("small", {}, `${x.upstream}, ${whole.format(x.in_flight)} in progress`),
      element("small", {}, `first byte p50 ${duration(x.latency.first.p50_seconds)}, last ${duration(x.latency.last.p50_seconds)}, p99 ${duration(x.latency.last.p99_seconds)}`)),
    number(rate(serverRequests(x))), failures(x.responses["5xx"].per_second, x.errors.per_second)] })), "The policy has no servers.");
  rows("workers", s.workers.map((w, i) => ({ key: i, cells: [element("td", {}, String(i)), number(whole.format(w.connections)), number(whole.format(w.requests_active)),
    element("td", { className: !s.redis ? "" : w.redis_ready ? "good" : "bad" }, !s.redis ? "not needed" : w.redis_ready ? "connected" : "down")] })), "");
}

function show(s) {
  text("process", `${s.version} · up ${span(s.uptime_seconds)} · ${s.policy_file}`);
  tiles(s);
  alerts(s);
  charts();
  tables(s);
}

function receive(s) {
  latest = s;
  if (s.interval_seconds || !history.length) history.push(s); /* the first snapshot has no rates */
  while (history.length > KEPT) history.shift();
  if (!paused) show(s);
}

/* --- Events ------------------------------------------------------------------------------------- */

function connection(word, level) {
  text("connection", word);
  $("connection").className = "badge " + level;
}
function request(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
}
function askForToken(error) {
  connection("token needed", "bad");
  $("login").hidden = false;
  text("login-error", error);
  $("token").focus();
}

/* The last ten minutes, as what the charts read of snapshots. */
async function readHistory(signal) {
  const response = await request("api/v1/history", { signal });
  if (!response.ok) return;
  history.length = 0;
  for (const [time, all, rejected, p50, p99, redis50, redis99, calls, over] of (await response.json()).samples)
    history.push({ time, interval_seconds: 1, decisions: { allowed: { per_second: all - rejected }, limited: { per_second: rejected } },
      latency: { requests: { p50_seconds: p50, p99_seconds: p99 }, redis: { p50_seconds: redis50, p99_seconds: redis99 } },
      rate_limit_service: { calls: { per_second: calls }, over_limit: { per_second: over } } });
}

/* Events come every second. A connection may end without a sign, for instance while a laptop sleeps. */
function expectEvents() {
  clearTimeout(retryTimer);
  retryTimer = setTimeout(() => {
    connection("no events", "bad");
    listen();
  }, 10000);
}

async function listen() {
  stream?.abort();
  expectEvents();
  const mine = stream = new AbortController();
  try {
    const response = await request("api/v1/events", { signal: mine.signal });
    if (response.status === 401) {
      clearTimeout(retryTimer);
      askForToken(token ? "weir does not accept this token." : "");
      return;
    }
    if (!response.ok) throw new Error((await response.json()).detail);
    $("login").hidden = true;
    await readHistory(mine.signal);
    connection("live", "good");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let buffer = ""; ;) {
      const { value, done } = await reader.read();
      if (done) break;
      expectEvents();
      buffer += value;
      const parts = buffer.split("\n\n");
      buffer = parts.pop();
      for (const part of parts)
        for (const line of part.split("\n"))
          if (line.startsWith("data: ")) receive(JSON.parse(line.slice(6)));
    }
    connection("reconnecting", "bad");
  } catch (error) {
    if (mine.signal.aborted) return;
    connection("not connected", "bad");
    if (!(error instanceof TypeError)) text("process", error.message);
  }
  clearTimeout(retryTimer);
  retryTimer = setTimeout(listen, 2000);
}

/* --- One client --------------------------------------------------------------------------------- */

let inspected = 0;
function clientPath(name) {
  return "api/v1/clients/" + encodeURIComponent(name);
}
async function answerOf(response) {
  const body = await response.json();
  if (response.status === 401) askForToken("");
  if (!response.ok) throw new Error(body.detail);
  return body;
}

function limitRow(l) {
  const share = l.capacity > 0 ? Math.max(0, Math.min(1, l.remaining / l.capacity)) : 0;
  const bar = element("i");
  bar.style.width = `${100 * share}%`;
  return element("tr", {},
    element("td", {}, l.limit, l.rest ? element("small", {}, l.rest) : null),
    element("td", { className: "number" }, `${whole.format(l.remaining)} of ${whole.format(l.capacity)}`, element("div", { className: "gauge" + (share < 0.2 ? " low" : "") }, bar)),
    element("td", { className: "number" }, l.resets_in_seconds === null ? "–" : l.resets_in_seconds > 0 ? "in " + span(l.resets_in_seconds) : "full"),
    element("td", { className: l.admits || !l.enforced ? "good" : "bad" }, l.admits ? "admits" : l.retry_after_seconds === null ? "rejects" : `rejects for ${period(Math.ceil(l.retry_after_seconds))}`,
      l.enforced ? null : element("small", {}, "not enforced")));
}

/* `warnings` are those of a change before; the client has its own. */
function showClient(client, warnings) {
  const facts = [`at ${new Date().toLocaleTimeString()}`, client.client_limits === "default" ? "limits of the policy" : client.client_limits, client.plan && `plan ${client.plan}`,
    client.grant && `granted ${client.grant.quota < 0 ? "unlimited" : whole.format(client.grant.quota)} for ${span(client.grant.ends_in_seconds)} more`].filter(Boolean).join(" · ");
  const heads = ["Limit", "Remaining", "Full again", "Now"].map((name, i) => element("th", { scope: "col", className: i === 1 || i === 2 ? "number" : "" }, name));
  $("found").replaceChildren(
    element("div", { className: "client-head" }, element("div", {}, element("b", {}, client.client), element("div", { className: "quiet" }, facts)),
      element("div", { className: "row" },
        element("button", { type: "button", id: "grant", onclick: () => change("grant", client.client) }, "Grant…"),
        client.grant ? element("button", { type: "button", id: "revoke", onclick: () => change("revoke", client.client) }, "End grant…") : null,
        element("button", { type: "button", id: "reset", onclick: () => change("reset", client.client) }, "Reset…"))),
    ...[...new Set([...warnings, ...client.warnings])].map((w) => element("p", { className: "warn", role: "alert" }, sentence(w))),
    client.limits.length
      ? element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...client.limits.map(limitRow)))
      : element("p", { className: "empty" }, "No limit has a state for this client."));
}

async function inspect(name, scroll, warnings = []) {
  const mine = ++inspected;
  $("client").value = name;
  if (scroll) $("search").scrollIntoView({ block: "center" });
  try {
    const client = await answerOf(await request(clientPath(name)));
    if (mine === inspected) showClient(client, warnings);
  } catch (error) {
    if (mine === inspected) $("found").replaceChildren(element("p", { className: "bad", role: "alert" }, error.message));
  }
}

const CHANGES = {
  grant: { title: "Grant a quota", text: (c) => `All limits of ${c} use this quota until the time is over.`, button: "Grant", level: "primary" },
  revoke: { title: "End the grant", text: (c) => `The limits of the policy apply to ${c} again, at once.`, button: "End grant", level: "danger" },
  reset: { title: "Reset the client", text: (c) => `Everything that ${c} has used is forgotten, in all weir processes with this Redis.`, button: "Reset", level: "danger" },
};
let pending = null;
function change(kind, client) {
  const { title, text: question, button, level } = CHANGES[kind];
  pending = { kind, client };
  text("dialog-title", title);
  text("dialog-text", question(client));
  text("dialog-error", "");
  $("grant-fields").hidden = kind !== "grant";
  $("quota").required = kind === "grant";
  $("quota").disabled = kind !== "grant";
  $("confirm").textContent = button;
  $("confirm").className = level;
  $("dialog").showModal();
}
async function confirmChange() {
  const mine = pending, { kind, client } = mine, quota = $("quota").value.trim();
  const body = kind === "revoke" ? { quota: null } : { quota: quota === "unlimited" ? quota : Number(quota), for: $("for").value };
  $("confirm").disabled = true;
  try {
    const { warnings } = await answerOf(await request(clientPath(client), kind === "reset" ? { method: "DELETE" } : { method: "PUT", body: JSON.stringify(body) }));
    if (pending !== mine) return;
    $("dialog").close();
    await inspect(client, false, warnings);
  } catch (error) {
    if (pending === mine) text("dialog-error", error.message);
  } finally {
    $("confirm").disabled = false;
  }
}

/* --- Start -------------------------------------------------------------------------------------- */

$("search").addEventListener("submit", (event) => { event.preventDefault(); inspect($("client").value.trim(), false); });
$("dialog-form").addEventListener("submit", (event) => { event.preventDefault(); confirmChange(); });
$("cancel").addEventListener("click", () => $("dialog").close());
$("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("weir-token", token);
  $("token").value = "";
  listen();
});
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  text("pause", paused ? "Resume" : "Pause");
  if (!paused && latest) show(latest);
});
new ResizeObserver(() => charts()).observe($("chart-requests"));
listen();
