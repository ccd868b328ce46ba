package notify

import (
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/notification"
)

// markdownEscape escapes the syntax of Markdown: reasons can contain output of commands.
var markdownEscape = strings.NewReplacer(
	`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`, "~", `\~`, "|", `\|`, "<", `\<`, ">", `\>`, "#", `\#`,
)

func moreText(n int) string { return fmt.Sprintf("… and %d more", n) }

// linkOf returns where a message leads.
func linkOf(m *notification.Message) string {
	if len(m.Lines) == 1 && m.Lines[0].Link != "" {
		return m.Lines[0].Link
	}
	return m.Link
}

// plainText formats a message as text of at most this many bytes, with its title.
func plainText(m *notification.Message, most int) string {
	title := marks[m.Severity] + " " + m.Title
	return title + "\n" + m.Body(most-len(title)-1)
}
