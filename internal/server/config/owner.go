package config

import (
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"github.com/belfry-cron/belfry/store"
)

// OtherOwner returns who owns a file, and whether that is another user than this one.
func OtherOwner(info fs.FileInfo) (owner int, other bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), int(stat.Uid) != os.Geteuid()
}

// UserName names a user of this machine.
func UserName(id int) string {
	text := strconv.Itoa(id)
	if u, err := user.LookupId(text); err == nil {
		return u.Username
	}
	return "the user " + text
}

// SharedUser returns the user as which both the server and commands of jobs run, "" where
// no command runs as the user of the server.
func (s Server) SharedUser() string {
	if !s.Has(store.RoleWorker) {
		return ""
	}
	own := os.Geteuid()
	if own != 0 {
		return UserName(own)
	}
	isRoot := func(name string) bool {
		if name == "0" {
			return true
		}
		u, err := user.Lookup(name)
		return err == nil && u.Uid == "0"
	}
	if s.Shell.DefaultUser == "" && s.LocalOnly() || slices.ContainsFunc(append([]string{s.Shell.DefaultUser}, s.Shell.AllowUsers...), isRoot) {
		return UserName(own)
	}
	return ""
}
