//go:build !linux

package cli

// clock reports whether the machine's clock is synchronized, which only Linux shows.
func clock() finding {
	return finding{Check: "clock", Status: isNote, Found: "this system does not tell whether it is synchronized"}
}
