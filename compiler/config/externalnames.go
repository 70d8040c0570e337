package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// ExternalNames says which Services of type ExternalName are served.
type ExternalNames struct {
	// Policy says whether any are. With refuse, their routes answer 503.
	Policy ExternalNamePolicy `json:"policy"`
	// Domains are the names that Services may lead to; "*." stands for any
	// number of labels, as in *.example.com. Without any, all names are served
	// but those that lead into the cluster or to the machine: localhost, names
	// of one label, Services of other namespaces, and the metadata services of
	// clouds. A name that is listed is served whatever it is.
	Domains []string `json:"domains"`
}

// ExternalNamePolicy says whether Services of type ExternalName are served.
type ExternalNamePolicy string

// The policies.
const (
	AllowExternalNames  ExternalNamePolicy = "allow"
	RefuseExternalNames ExternalNamePolicy = "refuse"
)

func (e ExternalNames) check(f field.Errors) {
	if e.Policy != AllowExternalNames && e.Policy != RefuseExternalNames {
		f.At("policy").Add(fmt.Sprintf("%q is neither allow nor refuse", string(e.Policy)), "use allow or refuse")
	}
	for i, d := range e.Domains {
		if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(d, "*."))) > 0 {
			f.At("domains").Element(i).Add(fmt.Sprintf("%q is not a DNS name", d), "use names such as partner.example, or *.partner.example for every name below it")
		}
	}
}
