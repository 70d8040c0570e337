// Package hostname knows the forms that the names of hosts have: as rules have them, as requests
// are compared with them, and in the model of package routing, where ".foo.com" is the wildcard
// "*.foo.com" and "" stands for every host.
package hostname
