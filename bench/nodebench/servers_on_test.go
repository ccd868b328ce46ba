//go:build servers

package nodebench

const withServers = true
