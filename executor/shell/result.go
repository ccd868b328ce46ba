package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/job"
)

// resultVariable names the file into which a step of a flow writes its result.
const resultVariable = "BELFRY_RESULT"

// makeResult makes the file for the result of a command.
func (p *prepared) makeResult(temp string) (err error) {
	if p.scriptDir == "" {
		if p.scriptDir, err = os.MkdirTemp(temp, scriptPrefix+strconv.Itoa(os.Getpid())+"-"); err != nil {
			return err
		}
		if p.account.change {
			if err := os.Chown(p.scriptDir, int(p.account.uid), int(p.account.gid)); err != nil {
				return err
			}
		}
	}
	p.result = filepath.Join(p.scriptDir, "result")
	f, err := os.OpenFile(p.result, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if p.account.change {
		err = f.Chown(int(p.account.uid), int(p.account.gid))
	}
	return errors.Join(err, f.Close())
}

// readResult returns what a command has written as its result, in JSON; nil for nothing.
func (p *prepared) readResult() (json.RawMessage, error) {
	if p.result == "" {
		return nil, nil
	}
	// The command may have put anything in the place of the file.
	f, err := os.OpenFile(p.result, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resultVariable, errors.Unwrap(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no longer a regular file", resultVariable)
	}
	text, err := io.ReadAll(io.LimitReader(f, job.ResultMax+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resultVariable, err)
	}
	if len(text) > job.ResultMax {
		return nil, fmt.Errorf("%s has more than %d bytes", resultVariable, job.ResultMax)
	}
	return parseResult(text)
}

// parseResult reads a JSON object, or lines name=value, whose values are texts.
func parseResult(text []byte) (json.RawMessage, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, nil
	}
	if text[0] == '{' {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, fmt.Errorf("%s begins with { and is not a JSON object: %w", resultVariable, err)
		}
		return text, nil
	}
	values := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("%s: line %d is not name=value; write lines like rows=12, or a JSON object", resultVariable, i+1)
		}
		values[name] = value
	}
	return json.Marshal(values)
}
