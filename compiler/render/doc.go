// Package render turns a routing model into the files of a snapshot by means
// of templates. It is a pure function of the model, the configuration and the
// templates, and it knows of every line that it writes which line of which
// template wrote it, and for which objects.
//
// # What templates see
//
// The templates are those of package templates, overlaid by the user's. A
// template's dot is a [TemplateData]. Functions are the hermetic ones of sprig (no
// clock, no randomness, no environment, nothing in map order) and our own:
//
//	quote VALUE           one word of haproxy.cfg, whatever the value holds
//	literal VALUE         the same where HAProxy expects a format
//	words LIST            the values of a list, separated by spaces
//	listen ADDRESS PORT   the address of a bind line
//	secret "NS/NAME" KEY  a word for a value of a Secret, filled in by the pusher
//	socket NAME ADDRESS PORT
//	                      the address of a socket within HAProxy, for bind and
//	                      server lines, named after a port that it listens on
//	answer STATUS TEXT    what a return or deny rule answers: the error page of
//	                      the status, or the text
//	listenQUIC ADDRESS PORT
//	                      the same for HTTP/3
//	verbatim LINE         a whole line that an object's author may write: of a
//	                      backend's Snippet, and of nothing else
//	keys MAP, values MAP  in the order of the keys
//
// .Objects "example.com/v1/Widget" are the objects of a kind that the configuration
// names, .Indexed "example.com/v1/Widget" "byHost" HOST those that hold a value
// where an index looks, both by namespace and name. Of such an object
//
//	.Content.spec.host      is a field that must be there
//	.Field "spec.timeout"   is one that need not, and then is nothing
//	.Object.Name, .Labels, .Annotations
//	                        are there without asking, as of Ingresses and Services
//
// Where a template fails at one of them, that one is left out and reported.
//
// # What a value may be
//
// Every value that a template interpolates is checked where it enters: text
// with a line break, a control character or an unprintable one is an error
// anywhere; in haproxy.cfg so is a space, '#', '$', a backslash or a quotation
// mark, unless the value went through quote, or a brace that stands alone. So no
// object can end a word, a condition, a line or a section. The check is put into the parse tree, as html/template does; no
// template has to remember it.
//
// # What is left to others
//
// Whether HAProxy accepts the result is for package validate to say.
//
// # Decisions
//
// A template for each backend is executed with less than others first
// (render.backendPage): what that does not hold cannot have been read, so that equality
// of all that it holds, positions included, says that what was written can be used again.
// Annotations are noted as they are asked for. A template that wants the hosts or other
// objects fails so, and is executed again with everything; what it writes is not
// remembered. Maps are remembered in the same way for hosts that are all equal. With or
// without a memory the same is done, so that the result is the same.
package render
