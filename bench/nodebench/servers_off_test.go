//go:build !servers

package nodebench

// withServers tells that database servers are installed: see package servers.
const withServers = false
