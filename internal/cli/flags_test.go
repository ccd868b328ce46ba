package cli

import (
	"strings"
	"testing"
)

func TestInvalidTextIsRefused(t *testing.T) {
	var l labels
	if err := l.Set("day=m\xffnday"); err == nil || !strings.Contains(err.Error(), `"day=m\xffnday" is not valid UTF-8`) || l != nil {
		t.Errorf("the error is %v, and %v is set", err, l)
	}
	if err := l.Set("day=Montag früh"); err != nil || l["day"] != "Montag früh" {
		t.Errorf("the error is %v, and %v is set", err, l)
	}
}
