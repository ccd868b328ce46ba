package archtest

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rowOfPicture matches the name of a wing and its folders; a description follows after two spaces.
var rowOfPicture = regexp.MustCompile(`^(\S.*?)  +(\S.*?)  +\S`)

// readPicture returns the wings that the picture of docs/architecture.md draws, from the bottom.
// Lines that begin with a space are arrows, or continue a row.
func readPicture(text string) (drawn []wing) {
	_, text, _ = strings.Cut(text, "```text\n")
	text, _, _ = strings.Cut(text, "```")
	for line := range strings.Lines(text) {
		if row := rowOfPicture.FindStringSubmatch(line); row != nil {
			drawn = append(drawn, wing{row[1], strings.Split(row[2], " ")})
		}
	}
	slices.Reverse(drawn)
	return drawn
}

// checkPicture compares the picture with the wings.
func checkPicture(drawn, wings []wing) (wrong []string) {
	for i, w := range wings {
		switch {
		case i >= len(drawn) || drawn[i].name != w.name:
			return append(wrong, "the picture does not have the wing "+w.name+" in its place")
		case !slices.Equal(drawn[i].paths, w.paths):
			wrong = append(wrong, "the picture has "+strings.Join(drawn[i].paths, " ")+" as "+w.name+", which is "+strings.Join(w.paths, " "))
		}
	}
	if len(drawn) > len(wings) {
		wrong = append(wrong, "the picture has the wing "+drawn[len(wings)].name+", and table.go has not")
	}
	return wrong
}

func TestThePictureOfTheWingsIsTrue(t *testing.T) {
	text, err := fs.ReadFile(root(), "docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range checkPicture(readPicture(string(text)), wings) {
		t.Errorf("docs/architecture.md: %s", sentence)
	}
}

func TestWrongPictureIsDetected(t *testing.T) {
	small := []wing{{"nouns", []string{"noun"}}, {"shells", []string{"shell/", "other"}}}
	const picture = "```text\nshells   shell/ other   effects\n            │\nnouns    noun           data\n```"
	if wrong := checkPicture(readPicture(picture), small); len(wrong) > 0 {
		t.Errorf("a true picture: %q", wrong)
	}
	for from, to := range map[string]string{"nouns    noun": "verbs    noun", "shell/ other": "shell/", "```text\n": "```text\ncmd      cmd/    main\n"} {
		if len(checkPicture(readPicture(strings.Replace(picture, from, to, 1)), small)) != 1 {
			t.Errorf("with %q for %q nothing is wrong", to, from)
		}
	}
}
