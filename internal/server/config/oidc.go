package config

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// OIDC is the provider for signing in besides tokens.
type OIDC struct {
	Issuer           URL        `json:"issuer,omitzero" max:"1024" doc:"The address of the provider, as its tokens have it, for example https://id.example.com/realms/main." why:"without it people sign in with tokens alone"`
	ClientID         string     `json:"client_id,omitzero" max:"256" doc:"The name of this client at the provider." why:"the provider has it"`
	ClientSecret     Password   `json:"client_secret,omitzero" max:"1024" doc:"Its secret." env:"BELFRY_OIDC_CLIENT_SECRET" why:"clients may have none; a file or the environment keeps it out of the configuration"`
	ClientSecretFile string     `json:"client_secret_file,omitzero" max:"4096" doc:"The file of the secret, which is read for each sign-in." why:"it can be replaced while the server runs"`
	ClientSecretName string     `json:"client_secret_name,omitzero" max:"258" doc:"The secret of Belfry with it, as namespace/NAME." why:"all servers of a store have it then"`
	RedirectURL      URL        `json:"redirect_url,omitzero" max:"1024" doc:"Where the provider sends browsers back to: the address of this server with /ui/sign-in/callback. The provider must know it." why:"the server does not know how browsers reach it"`
	Scopes           []string   `json:"scopes,omitzero" items:"32" max:"256" doc:"What is asked for beside openid." default:"profile, email" why:"most providers have them; some need groups as well"`
	Name             string     `json:"name,omitzero" max:"32" doc:"What the audit calls the provider, in front of the names of people: sso:ann@example.com." default:"sso" why:"it tells people from tokens"`
	Button           string     `json:"button,omitzero" max:"64" doc:"What the button of the sign-in page names." default:"the host of the issuer" why:"people know it by another name"`
	GroupsClaim      string     `json:"groups_claim,omitzero" max:"256" doc:"The claim with the groups of a person. Dots lead into objects: realm_access.roles." default:"groups" why:"most providers call it so"`
	NameClaim        string     `json:"name_claim,omitzero" max:"256" doc:"The claim with the name of a person in the audit." default:"the verified mail address, else preferred_username and the subject" why:"people know them by it"`
	Groups           GroupGrant `json:"groups,omitzero" items:"1000" doc:"The roles of groups: viewer, runner or admin in all namespaces, or namespace=role." why:"a group that is not here has none" reload:"yes"`
	People           GroupGrant `json:"people,omitzero" items:"1000" doc:"The roles of people by their verified mail address, likewise." why:"some providers have no groups" reload:"yes"`
	Everyone         []Grant    `json:"everyone,omitzero" items:"100" doc:"The roles of everyone who signs in, likewise." default:"none" why:"an account at the provider alone allows nothing" reload:"yes"`
	EmailDomains     []string   `json:"email_domains,omitzero" items:"64" max:"253" doc:"The domains of the verified mail addresses of people who may sign in." default:"any, or none" why:"a public provider signs anyone in" reload:"yes"`

	SessionFor job.Duration `json:"session_for,omitzero" min:"1m" max:"7d" doc:"How long a session lasts, used or not. Then the provider is asked again." default:"12h" why:"groups that were taken away at the provider count at the next sign-in"`
	CA         string       `json:"ca,omitzero" max:"4096" doc:"A file with the authorities of the certificate of the provider, in PEM." default:"the authorities of the system" why:"providers inside may have an authority of their own"`
}

// Password is a value that is not shown.
type Password string

// GroupGrant are roles by the name of a group, or by an address.
type GroupGrant map[string][]Grant

// Grant is a role, or namespace=role.
type Grant string

// UnmarshalText checks a grant.
func (g *Grant) UnmarshalText(text []byte) error {
	namespace, role := Grant(text).Parse()
	switch role {
	case store.RoleViewer, store.RoleRunner, store.RoleAdmin:
	default:
		return fmt.Errorf("%q is not a role, which is viewer, runner or admin, or namespace=role", text)
	}
	if strings.Contains(string(text), "=") && !job.IsNamespace(namespace) {
		return fmt.Errorf("%q is not the name of a namespace", namespace)
	}
	*g = Grant(text)
	return nil
}

// Parse returns the namespace, "" for all, and the role of a grant.
func (g Grant) Parse() (namespace string, role store.Role) {
	namespace, text, found := strings.Cut(string(g), "=")
	if !found {
		return "", store.Role(namespace)
	}
	return namespace, store.Role(text)
}

// CallbackPath is the path of OIDC.RedirectURL.
const CallbackPath = "/ui/sign-in/callback"

// DefaultSession is how long a session of a person lasts.
const DefaultSession = 12 * time.Hour

// beside returns the settings with files relative to the directory of the configuration.
func (o OIDC) beside(dir string) OIDC {
	for _, name := range []*string{&o.ClientSecretFile, &o.CA} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
	return o
}

// Filled returns the settings with their defaults.
func (o OIDC) filled() OIDC {
	if o.Issuer == "" {
		return o
	}
	if o.Name == "" {
		o.Name = "sso"
	}
	if o.Button == "" {
		o.Button = o.Issuer.Host()
	}
	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}
	if o.Scopes == nil {
		o.Scopes = []string{"profile", "email"}
	}
	if o.SessionFor == 0 {
		o.SessionFor = job.Duration(DefaultSession)
	}
	return o
}

// check reports conflicting settings.
func (o OIDC) check() error {
	if o.Issuer == "" {
		if o.ClientID != "" || o.RedirectURL != "" || len(o.Groups)+len(o.People)+len(o.Everyone) > 0 || o.ClientSecretFile != "" || o.ClientSecretName != "" {
			return errors.New("oidc has no issuer: set oidc.issuer")
		}
		return nil
	}
	secrets := 0
	for _, isSet := range []bool{o.ClientSecret != "", o.ClientSecretFile != "", o.ClientSecretName != ""} {
		if isSet {
			secrets++
		}
	}
	namespace, _, found := strings.Cut(o.ClientSecretName, "/")
	switch {
	case o.ClientID == "":
		return errors.New("oidc.client_id is missing: the name of this client at the provider")
	case o.RedirectURL == "":
		return errors.New("oidc.redirect_url is missing, such as https://belfry.example.com" + CallbackPath)
	case !strings.HasSuffix(string(o.RedirectURL), CallbackPath):
		return fmt.Errorf("oidc.redirect_url: %s must end in %s", o.RedirectURL, CallbackPath)
	case secrets > 1:
		return errors.New("oidc.client_secret, oidc.client_secret_file and oidc.client_secret_name cannot be combined: keep one of them")
	case o.ClientSecretName != "" && (!found || !job.IsNamespace(namespace)):
		return fmt.Errorf("oidc.client_secret_name: %q is not namespace/NAME", o.ClientSecretName)
	case len(o.Groups)+len(o.People)+len(o.Everyone) == 0:
		return errors.New("oidc gives no one a role: set oidc.groups, oidc.people or oidc.everyone")
	case strings.Trim(o.Name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "":
		return fmt.Errorf("oidc.name: %q has other letters than a-z, digits, dots, dashes and underscores", o.Name)
	case slices.Contains(o.EmailDomains, ""):
		return errors.New("oidc.email_domains: one is empty")
	}
	for name, address := range map[string]URL{"oidc.issuer": o.Issuer, "oidc.redirect_url": o.RedirectURL} {
		parsed, err := url.Parse(string(address))
		if err != nil || parsed.Scheme != "https" && !Address(parsed.Hostname()+":0").Loopback() {
			return fmt.Errorf("%s: %s has no TLS, and others could read tokens on their way: use https", name, address)
		}
	}
	return nil
}
