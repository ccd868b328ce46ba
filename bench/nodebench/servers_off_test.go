//go:build !servers

package nodebench

// withServers is set if database servers are installed: see package servers.
const withServers = false
