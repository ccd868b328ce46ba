package job

import (
	"encoding/json"
	"regexp"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// WorkHandler is the kind of work of a function in a user's program.
const WorkHandler Work = "handler"

// Handler is a function in a user's program, by the name under which the program
// registers it.
type Handler struct {
	Name string `json:"name" short:"true" max:"256" doc:"The name under which a program registers the function."`
}

// UnmarshalJSON implements [json.Unmarshaler]: stores keep a name alone as a text.
func (h *Handler) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &h.Name)
	}
	type fields Handler // has no UnmarshalJSON
	return json.Unmarshal(text, (*fields)(h))
}

func (h *Handler) kind() Work { return WorkHandler }

func (h *Handler) spec() RunSpec { return RunSpec{Handler: h} }

func (h *Handler) traits() traits { return traits{handler: h.Name, isCheap: true} }

func (h *Handler) filled() work { return h }

func (h *Handler) expand(visitor, *path) work { return h }

func (h *Handler) check(v *validator, _ *Job, run *path) {
	v.refuse(!IsHandlerName(h.Name), run.at("handler.name"), phrase.NotHandlerName.Of(quote(h.Name)),
		phrase.HandlerForm)
}

// IsHandlerName reports whether a job can name a handler so.
func IsHandlerName(name string) bool {
	return len(name) <= handlerNameMax && handlerPattern.MatchString(name)
}

// handlerNameMax is the longest name of a handler, as its field has it.
const handlerNameMax = 256

var handlerPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
