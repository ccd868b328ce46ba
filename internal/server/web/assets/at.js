// Addresses of the server, below the path at which a program has mounted it.
const root = new URL("../../..", import.meta.url).pathname.slice(0, -1);
export const at = path => root + path;
