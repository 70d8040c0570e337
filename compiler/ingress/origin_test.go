package ingress_test

import (
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

const twoObjects = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: web
spec:
  ingressClassName: hapsnap
  defaultBackend: {service: {name: web, port: {number: 80}}}
  tls:
  - {secretName: web-tls, hosts: [shop.example]}
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /cart, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: web
  annotations:
    hapsnap.dev/balance: leastconn
spec: {ports: [{port: 80}]}
`

// What is made from an object names the field, and the position if there is one.
func TestOriginsNameFields(t *testing.T) {
	t.Parallel()
	in := gather(t, []txtar.File{{Name: "m.yaml", Data: []byte(twoObjects)}})
	for _, position := range []string{"m.yaml", ""} {
		if position == "" { // as for an object of a cluster
			in.Ingresses[0].At, in.Services[0].At = nil, nil
		}
		model, _ := ingress.Translate(in, ingress.Config{})
		routes := map[string]routing.Origin{}
		for _, r := range model.Hosts[0].Routes {
			routes[r.Match.Path] = r.Origin
		}
		for _, c := range []struct {
			origin routing.Origin
			want   string
		}{
			{model.Hosts[0].Origin, "spec.rules[0].host"},
			{routes[""], "spec.rules[0].http.paths[0].path"},
			{routes["/cart"], "spec.rules[0].http.paths[1].path"},
			{model.DefaultOrigin, "spec.defaultBackend"},
			{model.Certificates[0].Origin, "spec.tls[0].secretName"},
			{model.Backends[0].Origins[1], `metadata.annotations["hapsnap.dev/balance"]`},
		} {
			if c.origin.Field != c.want || c.origin.Position.File != position {
				t.Errorf("%+v, want field %s of %s", c.origin, c.want, position)
			}
		}
	}
}
