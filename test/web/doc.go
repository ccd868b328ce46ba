// Package web tests the web UI in a browser: a server of its own, Chromium of the machine, and
// axe-core from the registry of npm for accessibility. Its tests have the build tag servers.
package web
