package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belfry-cron/belfry/executor/internal/verdict"
	"github.com/belfry-cron/belfry/job"
)

// resultVariable names the file into which a step of a flow writes its result.
const resultVariable = verdict.ResultVariable

// filePrefix begins the names of jobs' files: no script or result has such a name.
const filePrefix = "file-"

// makeResult makes the file for the result of a command.
func (p *preparedCommand) makeResult(temp string) (err error) {
	p.result, err = p.newFile(temp, "result", "")
	return err
}

// newFile makes a file in the folder of the attempt, which its user alone can read.
func (p *preparedCommand) newFile(temp, name, text string) (file string, err error) {
	if p.scriptDir == "" {
		if p.scriptDir, err = os.MkdirTemp(temp, scriptFolder()); err != nil {
			return "", err
		}
	}
	file = filepath.Join(p.scriptDir, name)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if p.account.change {
		err = errors.Join(err, f.Chown(int(p.account.uid), int(p.account.gid)))
	}
	return file, errors.Join(err, f.Close())
}

// giveFolder gives the folder of the attempt to its user. All files must exist before: the user
// could replace the folder by a link to a place where only this process may write.
func (p *preparedCommand) giveFolder() error {
	if p.scriptDir == "" || !p.account.change {
		return nil
	}
	return os.Chown(p.scriptDir, int(p.account.uid), int(p.account.gid))
}

// makeFiles writes the files of the job, and puts their paths into its environment.
func (p *preparedCommand) makeFiles(temp string, spec *job.Shell) error {
	if len(spec.Files) > 0 && spec.Env == nil {
		spec.Env = map[string]string{}
	}
	for variable, text := range spec.Files {
		file, err := p.newFile(temp, filePrefix+variable, text)
		if err != nil {
			return err
		}
		spec.Env[variable] = file
	}
	return nil
}

// readResult returns the result that the command has written, in JSON; nil for none.
func (p *preparedCommand) readResult() (json.RawMessage, error) {
	if p.result == "" {
		return nil, nil
	}
	// The command may have replaced the file by anything.
	f, err := os.OpenFile(p.result, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resultVariable, errors.Unwrap(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no longer a regular file", resultVariable)
	}
	// The folder may now be a link to a file that only this process may read.
	if of, ok := info.Sys().(*syscall.Stat_t); p.account.change && (!ok || of.Uid != p.account.uid) {
		return nil, fmt.Errorf("%s is a file of another user", resultVariable)
	}
	text, err := io.ReadAll(io.LimitReader(f, job.ResultMax+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resultVariable, err)
	}
	return verdict.ParseResult(text)
}
