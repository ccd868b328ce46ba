//go:build !linux

package cli

// clock reports whether something keeps the clock of the machine right. Only Linux
// says.
func clock() finding {
	return finding{Check: "clock", Status: isNote, Found: "this system does not tell whether it is synchronized"}
}
