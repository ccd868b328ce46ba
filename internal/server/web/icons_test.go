package web

import (
	"regexp"
	"strings"
	"testing"
)

// iconsMax is how many icons the sprite may have: each page loads it, and more are not told apart.
const iconsMax = 50

func TestTheSpriteHasFewIconsAndNoneThatNothingShows(t *testing.T) {
	sprite, err := assetFiles.ReadFile("assets/icons.svg")
	if err != nil {
		t.Fatal(err)
	}
	icons := map[string]bool{}
	for _, m := range regexp.MustCompile(`<symbol id="(\w+)"`).FindAllStringSubmatch(string(sprite), -1) {
		icons[m[1]] = true
	}
	if len(icons) == 0 || len(icons) > iconsMax || len(icons) != strings.Count(string(sprite), "<symbol") {
		t.Errorf("the sprite has %d icons by %d names, of %d", strings.Count(string(sprite), "<symbol"), len(icons), iconsMax)
	}
	text := sources(t, "templates/*.html", "assets/*.js", "*.go")
	for name := range icons {
		if !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("nothing shows the icon %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`\b(?:icon|spin) "(\w+)"|\bIcon: +"(\w+)"`).FindAllStringSubmatch(text, -1) {
		if name := m[1] + m[2]; !icons[name] {
			t.Errorf("the sprite has no icon %s", name)
		}
	}
}
