package config

import (
	"fmt"
	"regexp"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Affinity says how the cookies are made that keep sessions with endpoints.
type Affinity struct {
	// KeySecret is the Secret, as namespace/name, that holds the key of the
	// cookies. A cookie is a hash of this key and an endpoint's address, so that
	// every HAProxy knows it. The pusher puts the key in; no snapshot holds it,
	// and changing it ends all sessions. Without a Secret the key is public:
	// then anybody who has a cookie can find out the endpoint's address, and anybody who
	// knows an address can make the cookie that leads to it.
	KeySecret string `json:"keySecret"`
	// Key is the key within the Secret.
	Key string `json:"key"`
}

// secretKeyForm is what the API allows as a key of a Secret.
var secretKeyForm = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

func (a Affinity) check(f field.Errors) {
	if a.KeySecret != "" {
		f.At("keySecret").Add(checkShared(a.KeySecret), "use the namespace and the name of a Secret, or leave it out")
	}
	if !secretKeyForm.MatchString(a.Key) {
		f.At("key").Add(fmt.Sprintf("%q is not a key of a Secret", a.Key), "use letters, digits, -, _ and .")
	}
}
