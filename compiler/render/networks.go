package render

import "github.com/hapsnap/hapsnap/compiler/routing"

// listOf writes a list of networks, one to a line. Its first line keeps it from
// being empty, which the Dataplane API refuses to store.
func listOf(list routing.NetworkList) *assembly {
	origin := LineOrigin{Objects: []routing.Origin{list.Origin}}
	a := &assembly{text: []byte("# networks of " + list.String() + "\n"), origins: []LineOrigin{origin}}
	for _, network := range list.Networks {
		a.text = append(network.AppendTo(a.text), '\n')
		a.origins = append(a.origins, origin)
	}
	return a
}
