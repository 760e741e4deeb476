"""The fields of requests about one layer, and of those for a prediction alone."""

from alti.web.fields import Field

_TEXT = {
    "model": Field("string", "A name from GET /api/models; default: the first."),
    "text": Field("string", "The text.", required=True),
    "text_pair": Field("string", "The second text, for models that read two."),
}
_TICKET = {
    "ticket": Field("string", "A name of your choice: GET /api/queue?ticket= says where it is.")
}
HEADS = {
    **_TEXT,
    "layer": Field("integer", "Counted from 0.", required=True),
    "place": Field("integer", "The token whose row is sent where whole maps are too large.", 0),
    **_TICKET,
}
PREDICT = {
    **_TEXT,
    "position": Field("integer", "The token whose prediction is meant; default: as in /api/view."),
    **_TICKET,
}
LENS = {
    **_TEXT,
    "position": Field("integer", "The token whose prediction is meant; default: as in /api/view."),
    "target": Field("class", "A token; default: what the model predicts."),
    **_TICKET,
}
