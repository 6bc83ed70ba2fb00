"""Words and patterns by which evidence is told: data, in one table for each kind of text.

A word may accuse: a call failed, found nothing, reads. A run in a language that is not here, or
with tools of other names, is judged later. One kind of word acquits: what says that it is not ready
is hinted at and not refused, also where nobody rests between the looks; in words that are not here
such a poll is refused in the end. With a rest of five seconds no word is needed.
"""

from __future__ import annotations

from typing import Final

from otel_loopguard._util.values import NamedTuple

WORDS: Final = {says: frozenset(words.split()) for says, words in {
    # Names of tools: what a call does.
    "reads": "get read list search find fetch view show look lookup query check status "
        "describe count cat ls head tail grep inspect visit browse crawl scrape download "
        "retrieve calculate calc compute summarize translate validate verify test lint diff "
        "info help page explore analyze analyse weather wiki wikipedia arxiv",
    "writes": "write edit update create delete insert set add remove put post send book "
        "cancel apply patch reset replace move rename save upload submit modify append click "
        "clicked type typed press fill select commit push merge install build deploy publish "
        "exchange return transfer pay buy order register execute start stop restart kill run "
        "make drop scroll scrolled navigate goto back forward copy issue assign close open "
        "reopen approve enable disable reply refund invite subscribe",
    "waits": "wait sleep pause delay idle noop",
    # Done for others to see: made twice, it is done twice.
    "makes": "create send pay order buy book transfer refund charge publish invite reply "
        "submit spawn mail email",
    "searches": "search grep find",
    # Looks at one text after the other.
    "judges": "grade translate classify proofread grammar spell spelling moderate sentiment "
        "label",
    # Writes in a browser, where they act on a page; among files they only look elsewhere.
    "moves": "open close goto scroll scrolled back forward",
    "pages": "browser browse page web url tab link site window screen desktop app "
        "application surfer websurfer playwright selenium door gate valve lock account "
        "position order ticket issue pr request connection session",
    "shells": "bash shell sh zsh terminal cmd command powershell console computerterminal "
        "subprocess",
    "pythons": "python ipython jupyter notebook interpreter code",
    "runners": "sql exec executor",
    "databases": "query db database statement postgres postgresql mysql mariadb sqlite "
        "duckdb bigquery snowflake redshift",
    # Names of arguments: what a value is.
    "places": "url uri link href element selector ref xpath x y coordinate coordinates "
        "direction pixels delta amount tab app application browser",
    "files": "path file filename file_path filepath file_name line line_number lineno lines "
        "line_num start_line end_line window",
    "paging": "offset page page_number pageNumber page_no start start_line startLine "
        "from_line line line_number skip cursor position index start_index chunk part "
        "view_range line_range",
    "ends": "end end_line endLine to_line end_index last_line lineEnd",
    # Who asks, when, or why, but not what for.
    "volatile": "request_id requestId req_id correlation_id correlationId trace_id traceId "
        "idempotency_key idempotencyKey nonce timestamp ts current_time tool_call_id reason "
        "reasoning description thought thoughts explanation rationale justification "
        "task_progress attempt retry_count",
    "revision": "round iteration revision version turn step pass n",
    # Fields of an answer.
    "states": "status success ok result done sent state message code error data response "
        "acknowledged completed output value detail details content isError is_error errors",
    "failed": "error failed failure fatal",
    "finished": "completed complete done finished closed",
    # Of an announcement these say nothing about which action it is.
    "empty": "the a an to on in of for with and or by at it its this that these those is are "
        "be now next first then also just again right away out up into as so my our your me us "
        "you we will ll am going let task tasks work job request requested problem assignment "
        "step steps plan process begin beginning start starting started proceed proceeding "
        "continue continuing resume working get getting go ahead move moving do doing "
        "immediately soon shortly asked given assigned required gave everything thing things "
        "what",
}.items()}  # fmt: skip
"""Single words, by what they say."""

FILE_ARGUMENTS: Final = (
    "file_path", "path", "filename", "filepath", "file_name", "file", "notebook_path",
    "relative_path", "target_file",
)  # fmt: skip
"""Arguments that name a file, the surest one first."""
COMMAND_ARGUMENTS: Final = (
    "command", "cmd", "code", "query", "sql", "statement", "script", "input",
)  # fmt: skip
"""Arguments that hold what a shell, an interpreter or a database is to run; likewise."""

_THINGS: Final = (
    r"(?:\w{1,20} ){0,2}(?:results?|matches|match|records?|rows?|items?|files?|documents?|hits|"
    r"entry|entries|data|occurrences|mentions)"
)


class Phrase(NamedTuple):
    """A row of the table."""

    says: str
    language: str
    pattern: str


_BEGIN: Final = (
    "begin|start|proceed|continue|resume|kick off|get (?:started|going|to work|to it|on with|right "
    "on)|go ahead|dive|move|jump|work|tackle|handle|take care|address"
)
_SAY: Final = (
    "know|explain|say|tell|think|assume|suggest|recommend|note|mention|see|help|answer|describe|"
    "summari[sz]e|outline|share|ask|point|clarify|elaborate|wait|have|assist|provide|give|show|"
    "now|first|next|then|also|just|again|immediately|quickly|carefully|go|try|be|get"
)
_LEAD: Final = (
    r"(?:now |first |next |then |also |just |again |immediately |quickly |carefully |go ahead and |"
    r"proceed to |try to |get ready to |be )"
)

PHRASES: Final = (
    Phrase("pending", "en",
        r"\b(?:pending|in[ _-]?progress|(?:en)?queued|running|waiting|processing|working|"
        r"starting|scheduled|provisioning|initiali[sz]ing|creating|preparing|building|deploying|"
        r"uploading|downloading|compiling|indexing|training|syncing|loading|awaiting|ongoing|"
        r"incomplete|unfinished|retrying|booting|accepted|dispatched|on[ _-]hold|"
        r"(?:under|in)[ _-]review|"
        r"not[ _-](?:yet|ready|started|finished|done|complete|available)\w*|"
        r"no new \w+|still \w+|(?:is_?)?(?:done|ready|finished|completed?|available|approved)[\"']?"
        r"\s{0,3}[:=]\s{0,3}[\"']?(?:false|no|0)\b|(?:no|not|nothing)\b.{0,60}\byet|please wait|"
        r"check (?:back|again)|(?:try|ask|come) (?:again|back) (?:later|in|soon)|"
        r"retry[- _]?after|202\b)"),
    Phrase("over", "en",
        r"(?<!not )(?<!until )\b(?:failed|failure|error|exception|traceback|denied|crash\w*|"
        r"aborted|"
        r"cancell?ed|exited|killed|timed out|not found|no such|rejected|invalid|refused|fatal|"
        r"expired|closed|not running|first)\b"),
    Phrase("nothing", "en",
        r"\b(?:(?:no|zero) " + _THINGS + r"|nothing (?:was )?found|not found|none found|"
        r"no such|does not exist|returned no|did not (?:find|match|return)|could not find|"
        r"unable to locate|cannot be found|empty (?:set|result|list)|"
        r"reached the (?:end|bottom|top) of)|"
        # A number may end with 0: what is searched for is a 0 that stands alone.
        r"0 (?<!\w0 )" + _THINGS),
    Phrase("nothing", "de",
        r"\bkeine? (?:\w{1,30} ){0,2}(?:treffer|ergebnis|dokument|daten|eintr|artikel|produkt)|"
        r"\b(?:nichts|nicht) (?:\w{1,20} )?(?:gefunden|vorhanden)|\bexistiert nicht"),
    Phrase("nothing", "fr",
        r"\baucune? (?:résultat|document|donn|correspondance|enregistrement|article|produit|"
        r"élément)|\bsans (?:résultat|correspondance)|\bintrouvable|\bn'existe pas|"
        r"\b(?:rien|pas) (?:n'a )?(?:été )?trouv"),
    Phrase("nothing", "es",
        r"\bno se (?:encontr|ha encontrado|han encontrado)|\b(?:ningún|sin) resultado"),
    Phrase("nothing", "it",
        r"\bnessuna? (?:risultat|document|element|corrispondenz)|\bnon (?:è stat[oa] )?trovat|"
        r"\bnon esiste"),
    Phrase("nothing", "pt",
        r"\b(?:nenhum|sem) (?:resultado|documento|registro)|\bnão (?:foi |foram )?encontrad|"
        r"\bnão existe"),
    Phrase("nothing", "nl", r"\bgeen (?:resultaten|gegevens|documenten)|\bniet gevonden"),
    Phrase("nothing", "ru",
        r"(?:Н|н)ичего не найдено|(?:Н|н)е найден|(?:Н|н)ет (?:результатов|данных)"),  # noqa: RUF001
    Phrase("nothing", "zh",
        r"(?:未|没有|没|沒有|沒)(?:能)?(?:找到|查到|发现|發現|搜索到|查询到)|找不到|查无|查無|不存在|"
        r"(?:无|無|没有|沒有)(?:相关|匹配|任何|符合)?(?:的)?(?:结果|結果|记录|數據|数据|内容)"),
    Phrase("nothing", "ja",
        r"見つかりません|みつかりません|該当(?:は|が)?(?:なし|ありません)|"
        r"存在しません|(?:結果|データ|一致)(?:は|が)?(?:なし|ありません)"),
    Phrase("nothing", "ko",
        r"찾을 수 없|찾지 못|(?:결과|데이터|항목|내역)(?:가|이)? ?없|존재하지 않"),
    Phrase("nothing", "ar", r"لم يتم العثور|لا (?:توجد|يوجد) (?:نتائج|بيانات|نتيجة)|غير موجود"),
    Phrase("nothing", "hi", r"कोई (?:परिणाम|डेटा|रिकॉर्ड) नहीं|नहीं मिल"),
    Phrase("rejects", "en",
        r"\b(?:not pass(?:ed)?|(?:[1-9]\d{0,5}|tests?|checks?|case|build) fail(?:ed|ures?|ing)?|"
        r"did(?: not|n't) pass|(?:\w{1,20}_)?fail(?:ed|ure)\b|incorrect|wrong|rejected|declined|"
        r"unsolved goals|captcha|checking your browser|verify (?:that )?you are (?:a )?human|"
        r"(?:illegal|invalid) (?:move|action)|not (?:correct|accepted|valid)|invalid (?:user ?name|"
        r"user|password|pass ?phrase|login|credentials|code|pin|token|key|answer|guess))"),
    Phrase("none failed", "en",
        r"\b(?:0|no|zero|none) (?:\w{1,12} )?fail\w{0,5}|\"?fail\w{0,5}\"?\.{0,40}[:=] ?0\b"),
    Phrase("cut", "en",
        r"(?:\.\.\.|\xe2\x80\xa6|[\[(<.]{1,3} ?(?:output )?(?:cut|clipped|shortened|omitted|"
        r"snip(?:ped)?)\b[^\n]{0,60}|\btruncated\b[^\n]{0,60}|"
        r"\b\d+ more (?:characters|chars|bytes|lines)[^\n]{0,30})\W{0,4}$"),
    Phrase("refused", "en",
        r"(?i)<tool_use_error>|input ?validation ?error|"
        r"\b(?:unrecogni[sz]ed|unknown|invalid|illegal) (?:command(?:[: ]|$)|option\b|arguments?:)|"
        r"\Aunknown tool: |the following arguments are required"),
    Phrase("usage", "en", r"(?i)\A[\d:.,\[\]TZ+ -]{0,40}(?:\S{1,40} ?: )?usage:? "),
    Phrase("syntax", "shell",
        r"syntax error (?:near|:|at) |^\S{0,40}sh: .{0,80}syntax error|"
        r"unexpected EOF while looking for|syntax error: unexpected"),
    Phrase("unknown", "shell",
        r"\S: (?:command not found|not found(?:$| \())|command not found: |"
        r"is not recogni[sz]ed as (?:an internal or external command|the name of a cmdlet)"),
    # What stands in every line that the four above find.
    Phrase("refuses", "en",
        r"<tool_use_error>|input ?validation ?error|(?:unrecogni[sz]ed|unknown|invalid|illegal) "
        r"(?:command|option|arguments?:)|unknown tool: |the following arguments are required|"
        r"usage:? |syntax error|unexpected EOF while|not found|not recogni[sz]ed as"),
    Phrase("failed", "en",
        # Not where a number says that there was none: "error rate 0.0 %", "failed: 0".
        r"(?i)\A\s{0,8}(?:(?:error|exception|fatal|failed|failure|traceback)\b"
        r"(?!(?:[ _]\w{1,12}){0,2}[ :=]{1,3}(?:0(?:\.0{1,9})?(?![\w.])|none\b|null\b|\[\]))|"
        r"exit ?code:? ?[1-9]|"
        r"(?-i:[A-Z][a-z]\w{0,40}(?:Error|Exception): |E_[A-Z]{3,30}\b)|0x8[0-9a-f]{7}\b)"),
    # Programs that gave up, and an error that is all that a shell says.
    Phrase("broke off", "shell",
        r"(?:\A|\n)(?:make(?:\[\d+\])?: \*\*\* |error: could not compile |npm ERR!|npm error |"
        r"ninja: build stopped|BUILD FAILED|error: failed to push|error Command failed)"),
    Phrase("one line", "shell",
        r"[\w./-]{1,60}: .{1,200}: (?:Permission denied|No such file or directory|"
        r"Operation not permitted|Is a directory|Not a directory|Connection refused|"
        r"No space left on device|Read-only file system|Disk quota exceeded)\s*"),
    Phrase("names an error", "en",
        r"(?:error|exception|failed|failure|fatal|denied|not found|no such|cannot|invalid|unable|"
        r"refused|timed? ?out)\b"),
    Phrase("absent", "en",
        r"not[ _-]?found|\b404\b|\b(?:key|lookup)error\b|does ?n[o']t exist|"
        r"\bno (?:such )?(?:\w{1,20} )?(?:\w{1,20} )?(?:with|for|named|called|found)\b"),
    # What frameworks say in place of an error, OpenAI Agents by default.
    Phrase("no error", "en",
        r"(?i)(?:error:? )?(?:(?:an?|the) (?:(?:unexpected|internal|unknown) )?error (?:has )?"
        r"(?:occurred|happened)[\w ]{0,60}|something went wrong|(?:the )?tool (?:call )?failed|"
        r"unknown error)[.!]?(?: (?:please )?(?:try|retry)[\w ]{0,20}[.!]?)?"),
    Phrase("no output", "en", r"(?i)\A\W{0,2}[\w ]{0,60}\b(?:no|any) (?:console )?output\W{0,2}$"),
    Phrase("writes", "shell",
        r"(?<![<>=\-0-9&])>{1,2}(?!\s*(?:/dev/null|&))|<<-?\s*['\"]?\w|"
        r"(?:^|[;&|(\n]|&&|\bsudo|\bxargs)[^\S\n]*(?:"
        r"rm|mv|cp|mkdir|rmdir|touch|chmod|chown|ln|tee|dd|truncate|unzip|patch|kill|pkill|"
        r"sed\s+(?:-\w+\s+)*-\w*i|perl\s+-\w*i|tar\s+-?\w*x|"
        r"git\s+(?:add|commit|checkout|reset|stash|apply|am|merge|rebase|clone|pull|push|mv|rm|"
        r"restore|switch|cherry-pick|clean|init|branch|tag|bisect|revert|worktree|fetch|submodule)|"
        r"(?:pip3?|npm|yarn|pnpm|apt(?:-get)?|cargo|go|gem|brew|conda|uv|poetry)\s+(?:\w+\s+)?"
        r"(?:install|add|remove|uninstall|update|upgrade|build|get|sync|i|ci)|"
        r"make(?!\s+-n)|docker|kubectl\s+(?:apply|delete|create|patch)|systemctl|service|"
        r"export|cd|source|submit|edit|create)\b"),
    Phrase("reads", "shell",
        r"\A\s*(?:cd|echo|ls|cat|head|tail|less|grep|rg|find|pwd|wc|tree|stat|file|which|awk|sort|"
        r"uniq|cut|tr|sed -n|nl|true|"
        r"git (?:-C \S+ )?(?:status|diff|log|show|blame|branch|ls-files))\b"),
    Phrase("sleeps", "shell", r"\A\s*sleep\s+[\d.]+\s*(?:[smh]\s*)?$"),
    Phrase("sleep", "code", r"\bsleep[ (]{1,3}(\d{1,6}(?:\.\d{1,6})?)\s?([smhd]?)\b"),
    Phrase("asks for help", "shell",
        r"(?:^|[;&|]\s*)(?:help|man|info|cat|head|tail|less|more|grep|sed)\b|"
        r"\s(?:--?help|-h|-\?|/\?)(?:\s|$)"),
    Phrase("does nothing", "shell", r"\A\s*(?::(?:\s|$)|true\s*$|#[^\n]*$)"),
    Phrase("speaks", "shell", r"\A\s*echo\b(?:[^|<>;&$`\n\\]|\\.)*$"),
    Phrase("redirects", "shell", r"(?<!\d)(?<!&)>{1,2}\s*(?![&\s]|/dev/null)\S|<<|\$\(|`"),
    Phrase("several", "shell", r"&&|;|\n|<<|\|\|"),
    Phrase("writes", "sql",
        r"(?i)\A\s*(?:insert|update|delete|create|drop|alter|replace|truncate|merge|grant|use|set)\b"),
    # Unlike those, nothing that a search for words begins with.
    Phrase("changes", "sql",
        r"(?i)\A\s*(?:insert\s+into|update\s+\S{1,100}\s+set|delete\s+from|merge\s+into|"
        r"truncate\s+table|(?:create|drop|alter)\s+(?:table|index|view))\b"),
    Phrase("reads", "sql",
        r"(?i)\A\s*(?:(?:--[^\n]*\n|/\*[^*]{0,400}\*/)\s*){0,8}(?:\(\s*)?"
        r"(?:select|show|explain|describe|desc|pragma)\s"),
    Phrase("writes", "python",
        r"open\s*\([^)\n]{0,200}['\"][wax]b?\+?['\"]|\.write(?:_text|_bytes|lines)?\(|"
        r"os\.(?:remove|rename|mkdir|makedirs|system|unlink)|shutil\.|subprocess|"
        r"\.to_(?:csv|json|excel|parquet)\(|\.save\(|\.commit\("),
    # Names of arguments: what is searched for, what is asked for, and what marks the asking.
    Phrase("searches", "",
        r"(?i)quer|search|\bq\b|question|keyword|prompt|text|term|phrase|pattern|command|cmd|code|"
        r"script|sql|input|expression|such|frage|busca|recherche|requ[eê]te|关键|搜|查询|检索|"
        r"キーワード|検索|質問|검색|질문|запрос|سؤال|بحث|खोज|प्रश्न"),
    Phrase("identifies", "en", r"(?i)(?:_|\b)(?:id|no|nr|number|index)$|[a-z]Id$"),
    Phrase("thing", "en",
        r"(?i)(?:^|_)(?:id|uuid|guid|sha|hash|path|file|url|uri|key|name)s?$|Id$"),
    Phrase("marks", "en",
        r"(?i)req|trace|span|corr|nonce|idemp|attempt|call_?id|stamp|seed|salt|etag|cache|"
        r"(?:^|_)rid$"),
    Phrase("plan", "en",
        r"(?i)\A[^\n]{0,60}\b(?:plan|to-?dos?|tasks?|next steps|remaining|steps)\b[^\n]{0,30}"
        r"[:*]?"),
    Phrase("done", "en",
        r"(?i)\u2705|\u2714|~~|\((?:done|completed)\)|\b(?:done|completed)\W{0,3}$"),
    Phrase("keeps plans", "en",
        r"(?i)to-?_?do|task_?list|(?:write|update|set|make|create)_?plan|plan_"),
    Phrase("hedges", "en",
        r"\b(?:i(?:'m| am) not (?:entirely |completely |quite |really )?(?:sure|certain)"
        r"|i (?:might|may|could) be (?:wrong|mistaken)"
        r"|not (?:entirely |completely )?(?:sure|certain)"
        r"|i (?:guess|suppose|suspect|assume)|(?:it|that|this) (?:seems|appears|might be|may be"
        r"|could be)|it(?:'s| is) (?:unclear|possible that|hard to (?:say|tell))|unclear"
        r"|perhaps|maybe|possibly|presumably)\b"),
    Phrase("apologizes", "en",
        r"(?:\bi(?:'m| am)? (?:(?:truly|sincerely|deeply|very|so|really) )?(?:apologi[sz]e|sorry)"
        r"|\b(?:my|sincere) apolog(?:y|ies)|\bmy (?:mistake|bad)"
        r"|(?:\b(?:apologies|sorry) (?:for|about|again))|(?:^|[.!?] )(?:apologies|sorry))\b"),
    # The boundary before a word is looked for behind it: only its first letter is searched for.
    Phrase("personal", "en",
        r"(?:i(?<!\wi)|we(?<!\wwe)|my(?<!\wmy)|our(?<!\wour)|let(?<!\wlet)(?:'s| me))\b"),
    Phrase("promises", "en",
        rf"\b(?:(?:i|we)(?:'ll| will| am going to|'m going to| are going to|'re going to| shall|"
        rf" need to| am about to|'m about to| am ready to|'m ready to| have to| should| must|"
        rf" plan to| intend to| want to|'d like to| would like to)|let me|let's|let us|allow me to|"
        rf"time to|(?:about|ready|going) to) {_LEAD}?{_LEAD}?(?:(?P<begin>{_BEGIN})(?:ing)?|"
        rf"(?!(?:{_SAY})\b)[a-z]{{2,20}})\b"),
    Phrase("is at", "en",
        r"(?:^|\b(?:i am|i'm|we are|we're) )(?:(?:still|now|currently|just) ){0,2}"
        r"(?:(?P<begin>starting|beginning|proceeding|continuing|resuming|working|thinking|planning|"
        r"getting|moving|preparing|processing)|searching|looking|checking|running|opening|reading|"
        r"calling|fetching|querying|executing|browsing|creating|writing|implementing|fixing|"
        r"analy[sz]ing|investigating|loading|gathering)\b"),
)  # fmt: skip
"""Phrases and shapes of words; those of answers are looked for in lower case, as far as letters of
ASCII have one."""

LANGUAGES: Final = frozenset(one.language for one in PHRASES)


def pattern_of(says: str, *languages: str) -> str:
    """The pattern of what all phrases say that, or those of some languages."""
    return "|".join(
        one.pattern
        for one in PHRASES
        if one.says == says and (not languages or one.language in languages)
    )
