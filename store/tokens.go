package store

import (
	"context"
	"time"
)

// Tokens keeps who may call a server. Of a token itself it knows a hash.
type Tokens interface {
	// PutToken adds a token and writes the audit record in the same step. Its
	// expiry counts from the store's now. ErrExists is about its name and about
	// First, ErrLimit about TokensMax and SessionsMax. Adding again what is there, with
	// the same hash, changes nothing, unless it extends its life.
	PutToken(ctx context.Context, p PutToken) (Token, error)
	// DeleteToken revokes a token. ErrLastAdmin refuses the last that could make
	// others, ErrNotFound is about one that does not exist.
	DeleteToken(ctx context.Context, name, actor string) error
	// Tokens returns all tokens by name, those that have expired as well.
	Tokens(ctx context.Context) ([]Token, error)
}

// TokensMax is how many tokens a store keeps, and SessionsMax how many sessions and codes that
// stand for them. Every node has all of them in memory, and reads them every second when there
// are requests.
const (
	TokensMax   = 1000
	SessionsMax = 1000
)

// Role is what the holder of a token may do.
type Role string

// The roles, each of which may do all that those before it may.
const (
	RoleViewer Role = "viewer" // reads
	RoleRunner Role = "runner" // runs what is defined, and cancels it
	RoleAdmin  Role = "admin"  // defines
)

// The roles of what stands for another token, and has no rights of its own: a browser session
// and the code that begins one. Both are many and short-lived, so the audit leaves them out.
const (
	RoleSession Role = "session"
	RoleCode    Role = "code"
)

// StandsIn reports whether a token with this role stands for another one.
func (r Role) StandsIn() bool { return r == RoleSession || r == RoleCode }

// RoleRemote is the role of workers that reach no store. It may do nothing but a worker's
// part, which no other role may.
const RoleRemote Role = "worker"

// Allows reports whether a role may do what another one may. Roles that are not
// known may nothing.
func (r Role) Allows(wanted Role) bool {
	if wanted == RoleRemote {
		return r == RoleRemote
	}
	weight := map[Role]int{RoleViewer: 1, RoleRunner: 2, RoleAdmin: 3}
	return weight[wanted] > 0 && weight[r] >= weight[wanted]
}

// TokenHash is the SHA-256 of a token.
type TokenHash [32]byte

// Token is a token as a store keeps it.
type Token struct {
	Name      string // who its holder is in the audit
	Hash      TokenHash
	Role      Role
	Namespace string // that it is restricted to; "" for all
	Created   time.Time
	By        string    // who has made it
	Expires   time.Time // zero: it does not
}

// Valid reports whether a token may be used at a moment.
func (t *Token) Valid(now time.Time) bool { return t.Expires.IsZero() || now.Before(t.Expires) }

// PutToken is a token to add.
type PutToken struct {
	Name      string
	Hash      TokenHash
	Role      Role
	Namespace string
	Lasts     time.Duration // 0 for ever
	// First adds it only to a store that has no token at all.
	First bool
	// Replace puts it in the place of one with the same name.
	Replace bool
	// Extend moves the expiry of a token that is there with the same hash, and adds none.
	Extend bool
	Actor  string
}
