package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// Shared is what objects of every namespace may name, each as namespace/name.
// Anything else can be named by objects of its own namespace only.
type Shared struct {
	// NetworkLists are ConfigMaps whose keys are lists of networks, such as one
	// list for each country, for allow-list, deny-list and rate-limit-exempt.
	NetworkLists []string `json:"networkLists"`
	// AuthServices are Services that may be asked for authentication, with
	// auth-url.
	AuthServices []string `json:"authServices"`
}

func (s Shared) check(f field.Errors) {
	for i, name := range s.NetworkLists {
		f.At("networkLists").Element(i).Add(checkShared(name), "use the namespace and the name of a ConfigMap, such as edge/countries")
	}
	for i, name := range s.AuthServices {
		f.At("authServices").Element(i).Add(checkShared(name), "use the namespace and the name of a Service, such as edge/oauth2-proxy")
	}
}

func checkShared(name string) string {
	object, err := objectname.Parse(name)
	if err == nil && len(validation.IsDNS1123Label(object.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(object.Name)) == 0 {
		return ""
	}
	return fmt.Sprintf("%q is not namespace/name", name)
}
