//go:build !linux

package doctor

// clock reports whether the machine's clock is synchronized, which only Linux shows.
func clock() Finding {
	return Finding{Check: "clock", Status: Note, Found: "this system does not tell whether it is synchronized"}
}
