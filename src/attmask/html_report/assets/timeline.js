// When a run was trained: its sessions, what happened, and the waits for data.

const EVENTS = { start: "▶", stop: "■", kill: "✕", fail: "✕", finish: "★", return: "↩", extend: "＋", skip: "»", wait: "◷", finding: "!" };
const WAITING = "speed.waiting";

function timeText(text) {
  const time = text ? new Date(text) : null;
  return time && !Number.isNaN(time.getTime()) ? `${time.toISOString().slice(0, 16).replace("T", " ")} UTC` : "–";
}

function drawTimeline(host, run) {
  const { sessions, events } = run.timeline;
  if (!sessions.length && !events.length) return host.append(empty("This run has no recorded sessions.", "attmask pretrain IMAGES"));
  const hours = extent([sessions.flatMap((session) => [session.from_hours, session.to_hours]), events.map(({ hours: at }) => at).filter(Number.isFinite)]);
  if (hours) host.append(sessionsChart(run, Math.max(hours[1], 1e-6)));
  if (sessions.length) {
    host.append(make("h3", {}, "Sessions"), sortable({ label: "Sessions", rows: sessions, columns: [
      { title: "start", value: (row) => row.start, cell: (row) => prose(timeText(row.start)) },
      { title: "end", value: (row) => row.end, cell: (row) => prose(timeText(row.end)) },
      { title: "time", numeric: true, value: (row) => row.to_hours - row.from_hours, cell: (row) => duration(row.to_hours - row.from_hours) },
      { title: "steps", numeric: true, value: (row) => row.from_step, cell: (row) => `${readable(row.from_step, 9)} – ${readable(row.to_step, 9)}` },
      { title: "ended", value: (row) => row.ended, cell: (row) => prose(row.ended) },
      { title: "where", value: (row) => row.where, cell: (row) => prose(row.where) }] }).box);
  }
  if (events.length) {
    host.append(make("h3", {}, "Events"), sortable({ label: "Events", rows: events, kind: "tall", columns: [
      { title: "kind", value: (row) => row.kind, cell: (row) => make("span", { class: "in-row" }, make("span", { class: "event-mark", "aria-hidden": "true" }, EVENTS[row.kind] ?? "•"), prose(row.kind)) },
      { title: "after", numeric: true, value: (row) => row.hours, cell: (row) => duration(row.hours) },
      { title: "step", numeric: true, value: (row) => row.step, cell: (row) => readable(row.step, 9) },
      { title: "time", value: (row) => row.time, cell: (row) => prose(timeText(row.time)) },
      { title: "details", value: (row) => row.text, cell: (row) => prose(row.text) }] }).box);
  }
}

/** Bars of sessions over the hours of training, marks of events, and the share of time that was waited for data. */
function sessionsChart(run, last) {
  const { sessions, events } = run.timeline;
  const points = pointsOf(run, WAITING, "hours");
  const waits = points !== null && points.xs.some(Number.isFinite);
  const height = waits ? 168 : 104;
  const figure = make("figure", { class: "sessions" });
  const svg = draw("svg", { height, role: "img", "aria-label": `${sessions.length} sessions over ${duration(last)} of training and ${events.length} events; the tables below list them` });
  const render = () => {
    const width = Math.max(svg.parentElement?.clientWidth ?? 0, 200);
    const [left, right] = [44, width - 16];
    const toX = (hours) => left + ((right - left) * hours) / last;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    const bottom = height - 22;
    const { letters, inAnHour } = timeUnit(last);
    const ticks = ticksBetween(0, last * inAnHour, width / 110);
    const parts = ticks.map((tick) => draw("g", { class: "axes" }, draw("line", { x1: toX(tick / inAnHour), x2: toX(tick / inAnHour), y1: 34, y2: bottom }),
      draw("text", { x: toX(tick / inAnHour), y: height - 5, "text-anchor": "middle" }, `${tickText(tick, ticks[1] - ticks[0] || 1)} ${letters}`)));
    sessions.forEach((session, i) => {
      const x = toX(session.from_hours);
      const span = Math.max(toX(session.to_hours) - x - 1.5, 2);
      parts.push(draw("rect", { class: `session ${session.ended} ${i % 2 ? "odd-one" : ""}`, x, y: 40, width: span, height: 30, rx: 3 }));
      if (span > 8 * session.ended.length + 12) parts.push(draw("text", { class: "session-text", x: x + 8, y: 59 }, session.ended));
    });
    let free = -Infinity;
    for (const event of events.filter(({ hours }) => Number.isFinite(hours)).sort((a, b) => a.hours - b.hours)) {
      const x = Math.min(Math.max(toX(event.hours), left), right);
      parts.push(draw("line", { class: `event ${event.kind}`, x1: x, x2: x, y1: 26, y2: 74 }));
      if (x - free > 15) {
        parts.push(draw("text", { class: `event-letter ${event.kind}`, x, y: 20, "text-anchor": "middle" }, EVENTS[event.kind] ?? "•"));
        free = x;
      }
    }
    if (waits) {
      const high = Math.max(extent([points.ys])?.[1] ?? 1, 1);
      const toY = (y) => bottom - (46 * y) / high;
      parts.push(draw("path", { class: "waits", d: pathThrough(points.xs, points.ys, toX, toY, 2 * width) }),
        draw("text", { class: "waits-text", x: left - 6, y: bottom, "text-anchor": "end" }, "0 %"),
        draw("text", { class: "waits-text", x: left - 6, y: toY(high) + 8, "text-anchor": "end" }, `${readable(high, 2)} %`),
        draw("text", { class: "waits-text", x: left + 2, y: 88 }, "waiting for data"));
    }
    svg.replaceChildren(...parts);
  };
  figure.append(svg);
  figure.style.minHeight = `${height}px`;
  new ResizeObserver(render).observe(figure);
  document.addEventListener("drawall", render);
  return figure;
}
