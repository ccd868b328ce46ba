// One stream of events, opened again when it breaks. fetch tells the end of a session from a
// server that is away.
import {at} from "./at.js";

const silence = 20000; // the server sends something each 15 s

// stream follows events and calls heard for anything that comes, news with each event, and up,
// down and over when the connection stands, breaks, or the session has ended.
export function stream({up, heard, news, down, over}) {
  let query = null, own = null, standing = false, last = 0, wait = 1000, lastID = "", timer = 0;
  setInterval(() => { if (own && Date.now() - last > silence) lost(); }, 1000);

  function close() {
    clearTimeout(timer);
    own?.abort();
    own = null;
    standing = false;
  }

  function lost() {
    close();
    down();
    timer = setTimeout(open, wait);
    wait = Math.min(wait * 2, 30000);
  }

  function ended() {
    close();
    query = null;
    over();
  }

  async function open() {
    const mine = own = new AbortController();
    last = Date.now();
    try {
      const headers = {Accept: "text/event-stream"};
      if (lastID) headers["Last-Event-ID"] = lastID;
      const answer = await fetch(at("/api/v1/events?") + query, {headers, signal: mine.signal, cache: "no-store"});
      if (answer.status === 401) return ended();
      if (!answer.ok) throw new Error(answer.status);
      standing = true;
      last = Date.now();
      wait = 1000;
      up();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "";;) {
        const {value, done} = await reader.read();
        if (done) break;
        last = Date.now();
        heard();
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const id = /^id: (.*)$/m.exec(part), data = /^data: (.*)$/m.exec(part);
          if (id) lastID = id[1];
          if (/^event: problem$/m.test(part)) {
            const page = await fetch(at("/ui/kit"), {method: "HEAD", headers: {"X-Belfry": "1"}, cache: "no-store"});
            if (page.status === 401) return ended();
          } else if (data) news(JSON.parse(data[1]));
        }
      }
    } catch {
      if (mine.signal.aborted) return;
    }
    if (own === mine) lost();
  }

  return {
    // follow goes on with other events, or stops for null.
    follow(wanted) {
      if (wanted === query && (standing || wanted === null)) { if (standing) up(); return; }
      query = wanted;
      close();
      if (query !== null) open();
    },
  };
}
