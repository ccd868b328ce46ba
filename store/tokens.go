package store

import (
	"context"
	"encoding/json"
	"fmt"
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

// RoleJoin is the role of joining tokens, which a worker exchanges for a token of its own. It may do
// nothing else.
const RoleJoin Role = "join"

// Allows reports whether a role may do what another one may. Roles that are not
// known may nothing.
func (r Role) Allows(wanted Role) bool {
	if wanted == RoleRemote || wanted == RoleJoin {
		return r == wanted
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
	LastUsed  time.Time // to the hour; zero: never
	Terms
}

// Terms are what a token is good for besides its role and its namespace. Stores keep them as JSON.
type Terms struct {
	// Labels are those that workers with the token may have, as key=value or key=*; nil for any.
	Labels []string `json:"labels,omitempty"`
	// Certificate is the name that the client certificate of its holder must have; "" for none.
	Certificate string `json:"certificate,omitempty"`
	// Worker is the label worker of workers with the token; "" is the name of the token.
	Worker string `json:"worker,omitempty"`
	// Uses is how many workers may still join with a joining token.
	Uses int `json:"uses,omitempty"`
	// Person is who has a session that stands for no token.
	Person *Person `json:"person,omitempty"`
}

// Person is somebody whom a provider has identified.
type Person struct {
	Provider string   `json:"provider"`         // what it is called here
	Subject  string   `json:"subject"`          // who it is there, for ever
	Name     string   `json:"name"`             // what people call them
	Email    string   `json:"email,omitempty"`  // only if the provider has verified it
	Groups   []string `json:"groups,omitempty"` // those that meant something here at the sign-in
}

// Actor is the name of a person in the audit. No token has such a name.
func (p *Person) Actor() string { return p.Provider + ":" + p.Name }

// TermsText returns the terms as stores keep them: "" for none.
func (t *Token) TermsText() string {
	text, err := json.Marshal(&t.Terms)
	if err != nil || string(text) == "{}" {
		return "" // texts and numbers can be written
	}
	return string(text)
}

// SetTerms reads what TermsText has written.
func (t *Token) SetTerms(text string) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &t.Terms); err != nil {
		return fmt.Errorf("the terms of the token %s: %w: %w", t.Name, ErrDamaged, err)
	}
	return nil
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
	// Used notes that a token that is there with the same hash is in use, and adds none.
	Used bool
	// Joins is the joining token that is exchanged for this one: it gives its namespace and its
	// terms, and has one use less. ErrNotFound is about one that does not exist or has expired,
	// ErrLimit about one without uses.
	Joins TokenHash
	// Said is what the audit says of the beginning of a person's session.
	Said  string
	Actor string
	Terms
}
