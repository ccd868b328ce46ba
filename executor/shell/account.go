package shell

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// account is who a command runs as.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
	// nameless is set for a number that no user has: its group is not known.
	nameless bool
	// change is set when that is not who the node is.
	change bool
}

func (a account) credential() *syscall.Credential {
	if !a.change {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

const (
	// accountLife is how long what the system said about an account is
	// believed: looking it up takes as long as making a process.
	accountLife = 10 * time.Second
	// accountsMax bounds how many are remembered.
	accountsMax = 1000
)

// accounts decides who commands run as.
type accounts struct {
	root        bool // the node is root
	self        account
	defaultUser string
	allowed     []string // names and numbers; "*" is everybody but root
	groups      []string // that are allowed to those who are not in them

	mu    sync.Mutex
	known map[[2]string]knownAccount
}

type knownAccount struct {
	account
	until time.Time
}

func newAccounts(config Config) (*accounts, error) {
	a := &accounts{
		root: os.Geteuid() == 0, defaultUser: config.DefaultUser,
		allowed: slices.Clone(config.AllowUsers), groups: slices.Clone(config.AllowGroups), known: map[[2]string]knownAccount{},
	}
	a.self = account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	a.self.name, a.self.home = strconv.Itoa(os.Geteuid()), "/"
	if u, err := user.LookupId(a.self.name); err == nil {
		a.self.name, a.self.home = u.Username, u.HomeDir
	}
	if a.root && a.defaultUser != "" {
		// Others may be on some nodes only.
		if _, err := lookupUser(a.defaultUser); err != nil {
			return nil, fmt.Errorf("default user: %w", err)
		}
		a.allowed = append(a.allowed, a.defaultUser)
	}
	return a, nil
}

// allows tells whether commands may run as a user.
func (a *accounts) allows(uid uint32) bool {
	return slices.ContainsFunc(a.allowed, func(name string) bool {
		if name == "*" {
			return uid != 0
		}
		u, err := lookupUser(name)
		return err == nil && u.uid == uid
	})
}

// allowsGroup tells whether commands of a user may have a group: their own, and what
// the configuration says. Others would give them what it has not: files of the group
// shadow or disk, the sockets of docker.
func (a *accounts) allowsGroup(u account, gid uint32) bool {
	if u.uid == 0 || !u.nameless && gid == u.gid || slices.Contains(u.groups, gid) {
		return true
	}
	return slices.ContainsFunc(a.groups, func(name string) bool {
		allowed, err := lookupGroup(name)
		return err == nil && allowed == gid
	})
}

// of returns who a job with these fields runs as.
func (a *accounts) of(userName, groupName string) (account, error) {
	if userName == "" {
		if a.root && a.defaultUser == "" {
			return account{}, errors.New("the node is root and was not told whose commands it runs: start it with --run-as, or name a user in run.user")
		}
		userName = a.defaultUser
		if !a.root {
			userName = a.self.name
		}
	}
	key := [2]string{userName, groupName}
	now := time.Now()
	a.mu.Lock()
	k, ok := a.known[key]
	a.mu.Unlock()
	if ok && now.Before(k.until) {
		return k.account, nil
	}
	found, err := a.find(userName, groupName)
	if err != nil {
		return account{}, err
	}
	a.mu.Lock()
	if len(a.known) >= accountsMax {
		clear(a.known)
	}
	a.known[key] = knownAccount{found, now.Add(accountLife)}
	a.mu.Unlock()
	return found, nil
}

func (a *accounts) find(userName, groupName string) (account, error) {
	found := a.self
	if userName != a.self.name || a.root {
		var err error
		if found, err = lookupUser(userName); err != nil {
			return account{}, err
		}
	}
	if groupName != "" {
		gid, err := lookupGroup(groupName)
		if err != nil {
			return account{}, err
		}
		if a.root && !a.allowsGroup(found, gid) {
			return account{}, fmt.Errorf("the node's configuration does not allow user %s the group %s: shell.allow_groups names those that users need not be in", found.name, groupName)
		}
		found.gid = gid
	} else if found.nameless {
		return account{}, fmt.Errorf("user %s has no name on this machine, and so no group: name one in run.group", userName)
	}
	found.change = found.uid != a.self.uid || found.gid != a.self.gid
	switch {
	case !a.root && found.change:
		return account{}, fmt.Errorf("the node runs as user %s and cannot run commands as another user or group", a.self.name)
	case a.root && !a.allows(found.uid):
		return account{}, fmt.Errorf("the node's configuration does not allow commands of user %s", found.name)
	}
	return found, nil
}

// lookupUser finds a user by name or number. A number need not have a name.
func lookupUser(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		n, notNumber := strconv.ParseUint(name, 10, 32)
		if notNumber != nil {
			return account{}, fmt.Errorf("there is no user %s on this machine", name)
		}
		if u, err = user.LookupId(name); err != nil {
			return account{name: name, home: "/", uid: uint32(n), nameless: true}, nil
		}
	}
	found := account{name: u.Username, home: u.HomeDir}
	if found.uid, err = number(u.Uid); err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	if found.gid, err = number(u.Gid); err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("groups of user %s: %w", name, err)
	}
	for _, text := range groups {
		gid, err := number(text)
		if err != nil {
			return account{}, fmt.Errorf("groups of user %s: %w", name, err)
		}
		found.groups = append(found.groups, gid)
	}
	return found, nil
}

func lookupGroup(name string) (uint32, error) {
	if g, err := user.LookupGroup(name); err == nil {
		return number(g.Gid)
	}
	gid, err := number(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %s on this machine", name)
	}
	return gid, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}
