package service

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// sentence is an error that is made of an English sentence.
var sentence = regexp.MustCompile("phrase\\.Words\\((fmt\\.|[\"`])|job\\.Text\\([\"`]|FieldError\\{[^}]*\\b(Detail|Hint): *(fmt\\.|[\"`])|\\b(Detail|Hint) = [\"`]")

// Errors are codes of package phrase, so that they are there in each language.
func TestErrorsAreCodes(t *testing.T) {
	for _, pattern := range []string{"*.go", "../web/*.go", "../../remote/host/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			if regexp.MustCompile(`_test\.go$`).MatchString(file) {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range sentence.FindAllString(string(text), -1) {
				t.Errorf("%s makes an error of an English sentence: %s", file, found)
			}
		}
	}
}
