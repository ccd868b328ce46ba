// A shared worker: the tabs of a browser have one stream of events together, since HTTP/1.1
// allows six connections to a server.
import {stream} from "./stream.js";

const silent = 90000; // a tab says something each 20 s, and each minute when it is hidden
const tabs = new Map(); // what each wants, by its port

const all = what => { for (const port of tabs.keys()) port.postMessage(what); };
const events = stream({
  up: () => all({up: true}), heard: () => all({heard: true}), down: () => all({down: true}), over: () => all({over: true}),
  news: event => { for (const [port, tab] of tabs) if (wants(tab, event)) port.postMessage({news: true}); },
});

// wants is what the server would send to a tab with a stream of its own.
function wants(tab, event) {
  if (event.kind === "gap") return true;
  if (tab.kinds.length && !tab.kinds.some(kind => event.kind === kind || event.kind.startsWith(kind + "."))) return false;
  if (tab.job) return event.object === tab.job;
  return !tab.namespace || event.node !== undefined || event.kind === "stats" || (event.object ?? "").startsWith(tab.namespace + "/");
}

// together is what all tabs want.
function together() {
  const list = [...tabs.values()], query = new URLSearchParams();
  if (list.every(tab => tab.kinds.length)) for (const kind of [...new Set(list.flatMap(tab => tab.kinds))].sort()) query.append("kind", kind);
  for (const name of ["namespace", "job"]) if (list[0][name] && list.every(tab => tab[name] === list[0][name])) query.set(name, list[0][name]);
  return query.toString();
}

function leave(port) {
  tabs.delete(port);
  if (!tabs.size) events.follow(null);
}

self.onconnect = ({ports: [port]}) => {
  port.onmessage = ({data}) => {
    if (data.leave) { leave(port); return; }
    const tab = tabs.get(port);
    if (tab) tab.seen = Date.now();
    if (data.follow === undefined) return;
    const query = new URLSearchParams(data.follow);
    tabs.set(port, {kinds: query.getAll("kind"), namespace: query.get("namespace"), job: query.get("job"), seen: Date.now()});
    events.follow(together());
  };
};
setInterval(() => { for (const [port, tab] of tabs) if (Date.now() - tab.seen > silent) leave(port); }, 10000);
