package cli

// style marks words on a terminal only.
type style struct{ colour bool }

// styleFor returns the style for one of the streams. NO_COLOR and CLICOLOR_FORCE are common
// conventions of programs.
func styleFor(env Env, isTerminal bool) style {
	switch {
	case env.Getenv("NO_COLOR") != "":
		return style{}
	case env.Getenv("CLICOLOR_FORCE") != "" && env.Getenv("CLICOLOR_FORCE") != "0":
		return style{colour: true}
	default:
		return style{colour: isTerminal && env.Getenv("TERM") != "dumb"}
	}
}

func (s style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// strong marks the most important words.
func (s style) strong(text string) string { return s.paint("1", text) }

// faint marks unimportant words.
func (s style) faint(text string) string { return s.paint("2", text) }

// right marks new or good things.
func (s style) right(text string) string { return s.paint("32", text) }

// wrong is where the mistake is.
func (s style) wrong(text string) string { return s.paint("31", text) }
