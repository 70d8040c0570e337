package routing_test

import (
	"fmt"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// The translation of 10,000 Ingresses, of objects with positions.
func BenchmarkTranslate10k(b *testing.B) {
	var text []byte
	for i := range 10000 {
		text = fmt.Appendf(text, `---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: app-%[1]d}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: app-%[1]d
  annotations: {hapsnap.dev/balance: leastconn}
spec:
  ingressClassName: hapsnap
  rules:
  - host: app-%[1]d.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: app-%[1]d, port: {number: 80}}}}
`, i)
	}
	in := gather(b, []txtar.File{{Name: "many.yaml", Data: text}})
	b.ReportAllocs()
	for b.Loop() {
		if _, found := routing.Translate(in, routing.Config{}); len(found) > 0 {
			b.Fatal(found)
		}
	}
}
