package cli

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-cron/belfry/job"
)

// flagValue is a flag whose text is parsed as soon as it is read, so that a mistake is
// reported with the name of the flag.
type flagValue[T any] struct {
	value *T
	text  string // as given; the default until then
	kind  string // the name of the value in the help
	parse func(string) (T, error)
}

// Set is called by the flag library.
func (p *flagValue[T]) Set(text string) error {
	v, err := p.parse(text)
	if err != nil {
		return err
	}
	*p.value, p.text = v, text
	return nil
}

// String is called by the flag library.
func (p *flagValue[T]) String() string { return p.text }

// Type is called by the flag library.
func (p *flagValue[T]) Type() string { return p.kind }

// addParsed adds a flag whose default is written def in the help. The value stays unchanged without
// the flag.
func addParsed[T any](flags *pflag.FlagSet, value *T, name, short, def, kind, usage string, parse func(string) (T, error)) {
	flags.VarP(&flagValue[T]{value: value, text: def, kind: kind, parse: parse}, name, short, usage)
}

// The output formats.
const (
	asTable = "table" // for people
	asWide  = "wide"  // a table with more columns
	asJSON  = "json"  // one document
	asYAML  = "yaml"  // the same document
	asJSONL = "jsonl" // one line of JSON for each item
	asName  = "name"  // only the names of the items, a line each
)

// addOutput adds -o with the formats that a command has; the first is the
// default.
func addOutput(cmd *cobra.Command, value *string, formats ...string) {
	*value = formats[0]
	addChoice(cmd, value, "output", "o", "format of the output", formats...)
}

// addChoice adds a flag with a few allowed words.
func addChoice(cmd *cobra.Command, value *string, name, short, usage string, words ...string) {
	addParsed(cmd.Flags(), value, name, short, *value, strings.Join(words, "|"), usage, func(text string) (string, error) {
		return text, oneOf(words, text)
	})
	complete(cmd, name, words...)
}

// oneOf refuses a word that is not allowed.
func oneOf(allowed []string, word string) error {
	if slices.Contains(allowed, word) {
		return nil
	}
	err := fmt.Errorf("%q is not allowed; allowed: %s", word, strings.Join(allowed, ", "))
	if hint := didYouMean(word, "", allowed); hint != "" {
		err = fmt.Errorf("%w; %s", err, hint)
	}
	return err
}

// words is a repeatable flag whose values are some of a few words.
type words struct {
	list    *[]string
	allowed []string
	// elsewhere are words of another flag, which people use here by mistake.
	elsewhere     []string
	elsewhereFlag string
}

// addWordsBeside adds a words flag that is mistaken for another flag.
func addWordsBeside(cmd *cobra.Command, list *[]string, name, usage string, allowed []string, flag string, elsewhere []string) {
	cmd.Flags().Var(&words{list, allowed, elsewhere, flag}, name, usage)
	complete(cmd, name, allowed...)
}

// Set is called by the flag library.
func (w *words) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if err := oneOf(w.allowed, part); err != nil {
			if slices.Contains(w.elsewhere, part) {
				return fmt.Errorf("%w; did you mean --%s %s?", err, w.elsewhereFlag, part)
			}
			return err
		}
		*w.list = append(*w.list, part)
	}
	return nil
}

// String is called by the flag library.
func (w *words) String() string { return "" }

// Type is called by the flag library.
func (w *words) Type() string { return strings.Join(w.allowed, "|") }

// complete sets the shell completion of a flag's values.
func complete(cmd *cobra.Command, flag string, values ...string) {
	fixed := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, fixed); err != nil {
		panic(err) // a flag registered twice or not at all
	}
}

// noArguments refuses arguments of a command without any.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		f := misused("unexpected %q: %s takes flags only", args[0], cmd.CommandPath())
		for _, flag := range []string{"job", "text"} { // run list NAME, job list NAME
			if cmd.Flags().Lookup(flag) != nil {
				return f.withHint("did you mean --%s %s?", flag, quoted(args[0]))
			}
		}
		return f
	}
	return nil
}

// someNames requires one or more names.
func someNames(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return misused("the name of a %s is missing", what)
		}
		return nil
	}
}

// oneName requires exactly one name.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return misused("found %d arguments, expected one %s", len(args), what)
		}
		return someNames(what)(cmd, args)
	}
}

// addText adds a flag whose value parses itself and is unchanged without the flag. def describes
// the default.
func addText[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](flags *pflag.FlagSet, value *T, name, short, def, kind, usage string) {
	addParsed(flags, value, name, short, def, kind, usage, func(text string) (T, error) {
		var v T
		err := P(&v).UnmarshalText([]byte(text))
		return v, err
	})
}

// parsePositive reads a number from 1.
func parsePositive(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number from 1", text)
	}
	return n, nil
}

// parseLonger reads a duration that is longer than nothing.
func parseLonger(text string) (job.Duration, error) {
	d, err := job.ParseDuration(text)
	if err == nil && d == 0 {
		err = fmt.Errorf("%q is too short; the minimum is 1ms", text)
	}
	return d, err
}

// addWord adds a flag for a text that is not empty; kind names the value in the help.
func addWord(flags *pflag.FlagSet, value *string, name, short, kind, usage string) {
	addParsed(flags, value, name, short, "", kind, usage, func(text string) (string, error) {
		if text == "" {
			return "", errors.New("a value is missing")
		}
		return text, nil
	})
}

// addSwitch adds a yes-or-no flag that stays nil if not given, so that an explicit no overrides
// other sources.
func addSwitch(flags *pflag.FlagSet, value **bool, name, usage string) {
	addParsed(flags, value, name, "", "", "bool", usage, func(text string) (*bool, error) {
		yes, err := strconv.ParseBool(text)
		return &yes, err
	})
	flags.Lookup(name).NoOptDefVal = "true"
}

// labels is a repeatable flag KEY=VALUE.
type labels map[string]string

// Set is called by the flag library.
func (l *labels) Set(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" {
		return fmt.Errorf("%q is not KEY=VALUE", text)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%q is not valid UTF-8", text)
	}
	if *l == nil {
		*l = labels{}
	}
	if before, twice := (*l)[key]; twice && before != value {
		return fmt.Errorf("%s is given twice, as %q and %q", key, before, value)
	}
	(*l)[key] = value
	return nil
}

// String is called by the flag library.
func (l *labels) String() string { return "" }

// Type is called by the flag library.
func (l *labels) Type() string { return "KEY=VALUE" }

// names is a repeatable flag for names, which may also be separated by commas.
type names struct {
	list *[]string
	kind string
}

// Set is called by the flag library.
func (n names) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			return errors.New("a value is missing")
		}
		*n.list = append(*n.list, part)
	}
	return nil
}

// String is called by the flag library.
func (n names) String() string { return "" }

// Type is called by the flag library.
func (n names) Type() string { return n.kind }
