// Package health checks the machine of a server: its data directory, its disk, the user of
// its jobs, and the age of the last backup. belfry doctor shows all of it, and the server
// reports it to clients. It changes nothing but the note of a backup.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Finding is what a check has found.
type Finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // one of the three below, or mended
	Found  string `json:"found"`
	// Do says how to make it right.
	Do string `json:"do,omitempty"`
}

// What a finding means.
const (
	Well  = "ok"
	Note  = "note" // it works, and could be better
	Wrong = "wrong"
)

const (
	// spaceWanted is less than what a busy server writes in a day; below spaceMin it may
	// stop before the next check.
	spaceWanted = 1 << 30
	spaceMin    = 64 << 20
	// backupMax is how old a backup may be without a word.
	backupMax = 7 * 24 * time.Hour
)

// Saved is the last backup that belfry backup has made of the store in a data directory.
type Saved struct {
	At   time.Time `json:"at"`
	File string    `json:"file"`
}

// backupFile is the file of the data directory that has a Saved.
const backupFile = "backup.json"

// SaveBackup notes in a data directory that a backup was made.
func SaveBackup(dir string, b Saved) error {
	text, err := json.Marshal(b)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, backupFile), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("note the backup: %w", err)
	}
	return nil
}

// LastBackup returns the last backup that is noted in a data directory, if any.
func LastBackup(dir string) (b Saved, known bool) {
	text, err := os.ReadFile(filepath.Join(dir, backupFile))
	return b, err == nil && json.Unmarshal(text, &b) == nil && !b.At.IsZero()
}

// engineWithin bounds a question to a container engine.
const engineWithin = 5 * time.Second

// Containers returns whether the container engine of the machine works.
func Containers(ctx context.Context, c config.Server) Finding {
	f := Finding{Check: "containers", Status: Well, Found: "none run here"}
	socket := engine.Find(c.Containers.Socket, os.Getenv)
	if socket == "" {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, engineWithin)
	defer cancel()
	e := engine.New(socket)
	defer e.Close()
	v, err := e.Version(ctx)
	switch {
	case err == nil:
		f.Found = v.String() + " at " + socket
	case errors.Is(err, fs.ErrPermission):
		f.Status, f.Found = Note, "this user may not use "+socket
		f.Do = "add the user of the server to the group of the socket, which lets the server act as root, or set containers.socket"
	default:
		f.Status, f.Found = Note, "the container engine does not answer: "+err.Error()
		f.Do = "start Docker or podman.socket, or set containers.socket"
	}
	return f
}

// Backup returns the age of a store's last backup. Backups of database servers are unknown.
func Backup(c config.Server, now time.Time) Finding {
	f := Finding{Check: "backup", Status: Well, Found: "the store is in a database server, which has its own"}
	if c.Store.File() == "" {
		return f
	}
	b, known := LastBackup(c.Data)
	age := now.Sub(b.At)
	switch {
	case !known:
		f.Status, f.Found, f.Do = Note, "belfry backup has made none", "run belfry backup FILE each day, and keep the file on another machine"
	case age > backupMax:
		f.Status, f.Found, f.Do = Note, fmt.Sprintf("the last one is %d days old", age/(24*time.Hour)), "run belfry backup FILE each day"
	default:
		f.Found = "the last one was made at " + b.At.UTC().Format(time.RFC3339)
	}
	return f
}

// Separation reports whether commands of jobs run as another user than the server.
func Separation(c config.Server) Finding {
	f := Finding{Check: "user of jobs", Status: Well, Found: "not the user of the server"}
	name, running := config.RunningAs(c.Data)
	if !running {
		name = c.SharedUser()
	}
	if name != "" {
		f.Status = Note
		f.Found = "commands run as " + name + ", the user of the server: anyone who may define jobs can read its token and its store, whatever the namespace"
		f.Do = "run the server as root with --run-as, as operations.md shows, to keep namespaces apart"
	} else if !c.Has(store.RoleWorker) {
		f.Found = "none: this server runs no jobs"
	}
	return f
}

// Shell reports whether commands of jobs find a shell.
func Shell(c config.Server) Finding {
	f := Finding{Check: "shell", Status: Well, Found: "sh is found"}
	switch {
	case !c.Has(store.RoleWorker):
		f.Found = "none needed: this server runs no jobs"
	case !shell.FindsShell(c.Shell.Path):
		f.Status, f.Found = Note, "this node has no sh in the PATH of commands: command lines cannot run here, only programs that are named with their arguments"
		f.Do = "install a shell, or set shell.path; in a container use an image with the programs of the jobs, as install.md shows"
	}
	return f
}

// The modes of access(2).
const (
	MayEnter = 1
	MayWrite = 2
)

// DataDirectory reports whether this user can use a data directory.
func DataDirectory(dir string) Finding {
	f := Finding{Check: "data directory", Status: Wrong, Found: dir}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Status, f.Found, f.Do = Note, dir+" does not exist", "belfry serve creates it; --data names another one"
		return f
	case err != nil:
		f.Found, f.Do = err.Error(), "run this as the user of the server"
		return f
	case !info.IsDir():
		f.Found, f.Do = dir+" is not a directory", "move it away, or name another one with --data"
		return f
	}
	// Files are made in it. The kernel knows best who may.
	if err := syscall.Access(dir, MayWrite|MayEnter); err != nil {
		f.Found, f.Do = dir+" is not writable for this user", "run this as the user of the server, or give the directory to this user with chown"
		return f
	}
	if owner, other := config.OtherOwner(info); other {
		f.Status, f.Found, f.Do = Note, fmt.Sprintf("%s belongs to %s, and this is %s", dir, config.UserName(owner), config.UserName(os.Geteuid())), "run the server, and this, as "+config.UserName(owner)
		return f
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		f.Status, f.Found, f.Do = Note, fmt.Sprintf("other users of this machine can read %s: its mode is %04o", dir, mode), "chmod 700 "+dir
		return f
	}
	f.Status = Well
	return f
}

// existing returns a directory, or the nearest one above it that is there.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// DiskSpace tells how much room there is for a data directory.
func DiskSpace(dir string) Finding {
	f := Finding{Check: "disk space", Status: Wrong}
	var s syscall.Statfs_t
	if err := syscall.Statfs(existing(dir), &s); err != nil {
		f.Found, f.Do = err.Error(), "run this as the user of the server"
		return f
	}
	free := int64(s.Bavail) * int64(s.Bsize)
	f.Found = job.Size(free>>20<<20).String() + " free"
	switch {
	case free < spaceMin:
		f.Do = "free some space: nothing starts on a full disk"
	case free < spaceWanted:
		f.Status, f.Do = Note, "keep in the configuration limits how much history and output a server keeps"
	default:
		f.Status = Well
	}
	return f
}
