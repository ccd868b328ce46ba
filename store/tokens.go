package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Tokens keeps the tokens of callers, by their hashes.
type Tokens interface {
	// PutToken adds a token and writes the audit record in the same step. Its expiry counts
	// from the store's now. [ErrExists] concerns its name and First, [ErrLimit] concerns
	// [TokensMax] and [SessionsMax]. Adding an existing token again, with the same hash,
	// changes nothing, unless it extends its life.
	PutToken(ctx context.Context, p PutToken) (Token, error)
	// DeleteToken revokes a token. [ErrLastAdmin] refuses the last token that could create
	// others; an unknown token is [ErrNotFound].
	DeleteToken(ctx context.Context, name, actor string) error
	// Tokens returns all tokens by name, including expired ones.
	Tokens(ctx context.Context) ([]Token, error)
}

// TokensMax is the number of tokens in a store, and [SessionsMax] the number of their
// sessions and codes. Every node caches all of them, and reads them every second while it
// serves requests.
const (
	TokensMax   = 1000
	SessionsMax = 1000
)

// Role is the set of rights of a token.
type Role string

// The roles; each includes the rights of the previous ones.
const (
	RoleViewer Role = "viewer" // reads
	RoleRunner Role = "runner" // runs and cancels defined jobs
	RoleAdmin  Role = "admin"  // defines
)

// The roles of stand-ins for another token, without own rights: a browser session and the code that
// begins one. They are many and short-lived, so the audit omits them.
const (
	RoleSession Role = "session"
	RoleCode    Role = "code"
)

// StandsIn reports whether a token with this role stands for another one.
func (r Role) StandsIn() bool { return r == RoleSession || r == RoleCode }

// RoleRemote is the role of workers without a store. It may only do a worker's part, which
// no other role may.
const RoleRemote Role = "worker"

// RoleJoin is the role of joining tokens, which a worker exchanges for a token of its own.
// It has no other rights.
const RoleJoin Role = "join"

// Allows reports whether a role includes the rights of another one. Unknown roles have no
// rights.
func (r Role) Allows(wanted Role) bool {
	if wanted == RoleRemote || wanted == RoleJoin {
		return r == wanted
	}
	weight := map[Role]int{RoleViewer: 1, RoleRunner: 2, RoleAdmin: 3}
	return weight[wanted] > 0 && weight[r] >= weight[wanted]
}

// TokenHash is the SHA-256 of a token.
type TokenHash [32]byte

// Token is a token in a store.
type Token struct {
	Name      string // its holder in the audit
	Hash      TokenHash
	Role      Role
	Namespace string // its only namespace; "" for all
	Created   time.Time
	By        string    // who created it
	Expires   time.Time // zero for never
	LastUsed  time.Time // to the hour; zero for never
	Terms
}

// Terms are the terms of a token besides its role and its namespace. Stores keep them as
// JSON.
type Terms struct {
	// Labels are the allowed labels of workers with the token, as key=value or key=*; nil
	// for any.
	Labels []string `json:"labels,omitempty"`
	// Certificate is the name that the client certificate of its holder must have; "" for none.
	Certificate string `json:"certificate,omitempty"`
	// Worker is the label worker of workers with the token; "" is the name of the token.
	Worker string `json:"worker,omitempty"`
	// Uses is how many workers may still join with a joining token.
	Uses int `json:"uses,omitempty"`
	// Person is the owner of a session without a token.
	Person *Person `json:"person,omitempty"`
}

// Person is a user identified by a provider.
type Person struct {
	Provider string   `json:"provider"`         // its name in the configuration
	Subject  string   `json:"subject"`          // the person's constant id at the provider
	Name     string   `json:"name"`             // the person's readable name
	Email    string   `json:"email,omitempty"`  // only if the provider has verified it
	Groups   []string `json:"groups,omitempty"` // the configured groups that the person had at sign-in
	// SignedIn is when the person signed in, for a session that began later, as of a command
	// line. Zero: when the session began.
	SignedIn time.Time `json:"signed_in,omitzero"`
}

// Actor is the name of a person in the audit. No token has such a name.
func (p *Person) Actor() string { return p.Provider + ":" + p.Name }

// TermsText returns the encoded terms: "" for none.
func (t *Token) TermsText() string {
	text, err := json.Marshal(&t.Terms)
	if err != nil || string(text) == "{}" {
		return "" // texts and numbers always encode
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

// Valid reports whether a token is valid at a moment.
func (t *Token) Valid(now time.Time) bool { return t.Expires.IsZero() || now.Before(t.Expires) }

// PutToken is a token to add.
type PutToken struct {
	Name      string
	Hash      TokenHash
	Role      Role
	Namespace string
	Lasts     time.Duration // 0 without end
	// First adds the token only to a store without tokens.
	First bool
	// Replace replaces the token with the same name.
	Replace bool
	// Extend moves the expiry of an existing token with the same hash, and adds none.
	Extend bool
	// Used records the use of an existing token with the same hash, and adds none.
	Used bool
	// Joins is the joining token that is exchanged for this one: it passes on its namespace
	// and its terms, and loses one use. An unknown or expired one is [ErrNotFound], one
	// without uses [ErrLimit].
	Joins TokenHash
	// Said is the audit text for the start of a person's session.
	Said  job.Reason
	Actor string
	Terms
}
