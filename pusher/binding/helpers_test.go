package binding

import (
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// sp is a Service port, such as "shop/web:http".
func sp(text string) snapshots.ServicePort {
	port, err := snapshots.ParseServicePort(text)
	if err != nil {
		panic(err)
	}
	return port
}

func httpPort(service string) snapshots.ServicePort {
	return snapshots.ServicePort{Namespace: "shop", Service: service, Port: "http"}
}
