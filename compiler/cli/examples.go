package cli

// examples are what each verb is used for.
var examples = map[string][]string{
	"render":          {"render -f manifests -o out", "render -f manifests --config config.yaml -o 'git+file:///srv/edge.git?branch=edge'"},
	"run":             {"run -f manifests --store dir:snapshots", "run --kubeconfig ~/.kube/config --store configmap:edge/snapshots"},
	"status":          {"status --address localhost:8080", "status --store dir:snapshots --exit-code"},
	"explain":         {"explain haproxy.cfg:120 -f manifests", "explain maps/host.map:3 --kubeconfig ~/.kube/config"},
	"explain request": {"explain request https://shop.example.com/cart -f manifests", "explain request POST http://shop.example.com/ --store dir:snapshots --snapshot r12"},
	"diff":            {"diff before manifests", "diff dir:snapshots@head manifests -o markdown"},
	"test":            {"test", "test tests/checkout.yaml --run headers"},
	"fn":              {"fn --haproxy /usr/sbin/haproxy"},
	"migrate":         {"migrate -f manifests", "migrate -f manifests -o manifests --class hapsnap", "migrate -f manifests --to gateway --gateway infra/web -o gateway"},
	"rbac":            {"rbac", "rbac --config config.yaml"},
	"version":         {"version"},
}
