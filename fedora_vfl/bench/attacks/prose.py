"""The prose of the page: how to read it, and what each part measures."""

SOURCE = """\
Each run is a whole training with two passive parties and one active party, by the parties' own code (networks, \
batches, losses, update rules, noise, wire types) in one process instead of three. `tests/test_attacks_bench.py` \
holds such a run against a cluster of real processes: on digits, with bfloat16 on the wire, all parameters are equal \
to the bit after training and after FedORA. An attack gets what its role has in such a run and nothing else, but for \
what the list of attacks says it needs to know."""
READING = """\
A figure is the mean over seeds ± its standard deviation; in brackets stands what is reached *without* looking, which \
is what counts as no leak. *Balanced accuracy* is the mean, over classes, of the share recognised: naming the \
majority class, or any other way of guessing, gets 1/C. *R²* is the share of the columns' variance that is recovered: \
predicting the mean gets 0, the true rows get 1, below 0 is worse than the mean. *AUC* is 0.5 for guessing. \
*Advantage*, in the picture and in the table of all figures beside this page, is the part of the way from guessing to \
certainty."""
LABELS = """\
A curious passive party guesses the labels of the training rows, those it knows left out. A row's gradient is p − y, \
the prediction less the label, passed back through the top model: the label decides which way it points, however good \
the model is. The lines “from raw columns” use the same labels and the same head on columns that were never trained \
with anybody: what completion has over them is the federation's doing. Length is for two classes only. The control \
gives every row the gradients of another row, and should be a guess."""
FEATURES = """\
A curious active party guesses passive-1's rows, all encoded columns together, from the embeddings that evaluation \
sends. In brackets, for the learned inverses, is a regression with the same known rows from what the active party has \
anyway: labels, and its own columns if it has any. *Bottom known* is for a bottom that got out; *untrained* for one \
made from a seed that others know, attacked with the embeddings of the very first batch. Categories are columns of \
Income: in brackets the share of the most frequent value. Where rows are wider than embeddings (colour images) many \
rows fit an embedding, and the bottom alone does worse than an inverse that has seen true rows."""
PROPERTY = """\
A curious active party guesses something that is no column of the party whose embeddings it looks at, having 100 rows \
of which it is known: on Income, sex from passive-1 (age, workclass, fnlwgt, education) and whether age is above the \
median from passive-2 (marital status, occupation, relationship, race, sex); on images, whether the other party's \
half is brighter than the median. In brackets: the same from labels and the active party's own columns. The lines \
below each say what the party's raw columns would give away."""
MEMBERSHIP = """\
One row in ten is forgotten, by FedORA's defaults and by Retrain. AUC of telling forgotten rows, and rows that are \
kept, from test rows. Retrain never saw the forgotten rows: its figure is the mark for a model that has forgotten. \
PathMNIST's test images are of other patients than its training images, in a collection of their own: a passive party \
tells them apart after Retrain as well, so that its figures there are a difference of data and no memory. True \
positives at 1 % false alarms, a stricter measure, are in the table beside this page. This is about the *model*: who \
takes part in training is no secret among the parties, which compare ids, and neither is who asked to be forgotten."""
OUTSIDERS = """\
The coordinator is told figures, never rows. A model that always says one class (made by forgetting the others) turns \
accuracy into the share of that class in a group (here the rarest one): for a group of one that says whether the row \
is of the class; for ten or more, naming all rows of a group alike is hardly better than the majority (in brackets). \
Two groups that differ in one row would tell that row's class again, whatever their size: that is why figures about \
few rows, and differences of groups, must not be told. The outsider gets the number of rows of every batch. Sizes of \
messages are the same, one by one, with true and with shuffled labels, so that they say nothing of labels. They are \
sizes of protobuf messages, taken before HTTP/2 and TLS; what these add, and times of messages, were not attacked."""
DEFENCES = """\
*Labels* is the strongest of direction, clusters and classifier; *completion* has 100 labels; *rows* is the strongest \
of the inverses with 200 known rows and of the bottom known, from one release and from the mean of 30 releases with \
fresh noise; *property* is from passive-2. ε is for one row of a passive party over training and the 30 releases, at \
δ = 1e-5 ([what it means](../privacy.md)). Clipping and noise of gradients are in units of 1/B, B = 128 being the \
batch. *Clip* is `privacy: {clip: …, noise: 0}`, and noise comes with a clip of 1. **Gradients withheld**, **label \
shield** (noise along the directions in which the classes' mean gradients differ, its deviation so many times their \
spread; after Marvell) and **distance correlation** (a penalty at passive parties; after NoPeek) have a star: they \
are experiments of this benchmark and **no settings of the product**; all others are. Gradients withheld are the mark \
for all defences of labels: bottoms stay as they were made, and accuracy is what a top model makes of random bottoms."""
SIGHT = (
    ("passive party", "its own rows and bottom; ∂L/∂h of its rows, every epoch", "labels"),
    ("active party", "labels, its own columns; every embedding, every epoch and evaluation", "passive parties' rows"),
    ("coordinator", "numbers of rows, losses, accuracies, norms", "single rows, where a figure is about few"),
    ("outsider", "who talks to whom, when, and how much (TLS)", "numbers of rows, batches and rounds"),
)
LIMITS = (
    "The attacks are our own implementations, and simple. A better one may get further: a low figure is no proof "
    "of safety, a high one is proof of a leak.",
    "Parties are curious, not malicious: they run the protocol as it is. One that sends made-up embeddings or "
    "gradients, or submits jobs made for it, may get more.",
    "Known rows and labels are drawn at random from the same people. An attacker who knows only some kinds of "
    "people gets less.",
    "Networks and data sets are small and training is short; models that fit their rows more closely remember "
    "more of them.",
    "What several parties learn by putting their views together, or one from several jobs over the same rows, is "
    "measured only for fresh noise (30 releases).",
    "Attackers know of clipping, and of the size of noise, but do not adapt to other defences.",
    "Both sides were set by looking at first runs on the same data: strengths of noise and label shield were "
    "raised until the leak closed, the classifier on gradients was added because other attacks missed what noise "
    "had left, and the prior of the search through a known bottom was set on CIFAR-10 and digits. The strengths "
    "that close a leak here are no recommendation for other data.",
    "Colour images were tried with two seeds and two defences only; that a defence holds on every data set it was "
    "tried on may mean Income and digits alone.",
    "Spreads are over few seeds. Differences below about 0.05 mean nothing.",
)
