// Package health checks the machine of a server: its data directory, its disk, the user of its
// jobs, and the age of the last backup. belfry doctor shows all of it, and the server reports it to
// clients. It only writes the note of a backup.
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
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Finding is what a check has found.
type Finding struct {
	Check  phrase.Text
	Status string // one of the three below
	Found  phrase.Text
	Do     phrase.Text // the remedy; optional
}

// The meanings of a finding.
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

// Saved is the last backup of the store in a data directory by belfry backup.
type Saved struct {
	At   time.Time `json:"at"`
	File string    `json:"file"`
}

// backupFile is the file of the data directory that has a [Saved].
const backupFile = "backup.json"

// SaveBackup records a backup in a data directory.
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
	f := Finding{Check: phrase.OfContainers, Status: Well, Found: phrase.NoContainersHere}
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
		f.Found = phrase.EngineAt.Of(v.String(), socket)
	case errors.Is(err, fs.ErrPermission):
		f.Status, f.Found, f.Do = Note, phrase.EngineForbidden.Of(socket), phrase.EngineGroup
	default:
		f.Status, f.Found, f.Do = Note, phrase.EngineAway.Of(phrase.Words(err.Error())), phrase.StartEngine
	}
	return f
}

// Backup returns the age of a store's last backup. Backups of database servers are unknown.
func Backup(c config.Server, now time.Time) Finding {
	f := Finding{Check: phrase.OfBackup, Status: Well, Found: phrase.BackupOfServer}
	if c.Store.File() == "" {
		return f
	}
	b, known := LastBackup(c.Data)
	age := now.Sub(b.At)
	switch {
	case !known:
		f.Status, f.Found, f.Do = Note, phrase.NoBackup, phrase.BackupAway
	case age > backupMax:
		f.Status, f.Found, f.Do = Note, phrase.BackupOld.Of(int(age/(24*time.Hour))), phrase.BackupDaily
	default:
		f.Found = phrase.BackupMade.Of(phrase.MomentOf(b.At))
	}
	return f
}

// Separation reports whether commands of jobs run as another user than the server.
func Separation(c config.Server) Finding {
	f := Finding{Check: phrase.OfJobUser, Status: Well, Found: phrase.OtherJobUser}
	name, running := config.RunningAs(c.Data)
	if !running {
		name = c.SharedUser()
	}
	if name != "" {
		f.Status, f.Found, f.Do = Note, phrase.SharedJobUser.Of(name), phrase.RunAs
	} else if !c.Has(store.RoleWorker) {
		f.Found = phrase.NoJobsHere
	}
	return f
}

// Shell reports whether commands of jobs find a shell.
func Shell(c config.Server) Finding {
	f := Finding{Check: phrase.OfShell, Status: Well, Found: phrase.ShellFound}
	switch {
	case !c.Has(store.RoleWorker):
		f.Found = phrase.NoShellNeeded
	case !shell.FindsShell(c.Shell.Path):
		f.Status, f.Found, f.Do = Note, phrase.NoShell, phrase.InstallShell
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
	f := Finding{Check: phrase.OfData, Status: Wrong, Found: phrase.Name.Of(dir)}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Status, f.Found, f.Do = Note, phrase.DoesNotExist.Of(dir), phrase.ServeCreates
		return f
	case err != nil:
		f.Found, f.Do = phrase.OfError(err), phrase.AsServerUser
		return f
	case !info.IsDir():
		f.Found, f.Do = phrase.NotDirectory.Of(dir), phrase.MoveItAway
		return f
	}
	// Its files must be created. The kernel knows best who may.
	if err := syscall.Access(dir, MayWrite|MayEnter); err != nil {
		f.Found, f.Do = phrase.NotWritable.Of(dir), phrase.GiveDirectory
		return f
	}
	if owner, other := config.OtherOwner(info); other {
		f.Status, f.Found, f.Do = Note, phrase.BelongsTo.Of(dir, config.UserName(owner), config.UserName(os.Geteuid())), phrase.RunAsOwner.Of(config.UserName(owner))
		return f
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		f.Status, f.Found, f.Do = Note, phrase.OthersRead.Of(dir, fmt.Sprintf("%04o", mode)), phrase.Name.Of("chmod 700 "+dir)
		return f
	}
	f.Status = Well
	return f
}

// existing returns a directory, or its nearest existing ancestor.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// free returns the free space for a data directory.
func free(dir string) (job.Size, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(existing(dir), &s)
	return job.Size(int64(s.Bavail) * int64(s.Bsize) >> 20 << 20), err
}

// LittleSpace describes a lack of space for a data directory, "" for enough.
func LittleSpace(dir string) string {
	if room, err := free(dir); err == nil && room < spaceWanted {
		return room.String()
	}
	return ""
}

// DiskSpace reports the free space for a data directory.
func DiskSpace(dir string) Finding {
	f := Finding{Check: phrase.OfDisk, Status: Wrong}
	room, err := free(dir)
	if err != nil {
		f.Found, f.Do = phrase.OfError(err), phrase.AsServerUser
		return f
	}
	f.Found = phrase.SpaceFree.Of(room.String())
	switch {
	case room < spaceMin:
		f.Do = phrase.FreeSpace
	case room < spaceWanted:
		f.Status, f.Do = Note, phrase.KeepLimits
	default:
		f.Status = Well
	}
	return f
}
